"""Limits connections of browsers, so that slow or numerous ones do not affect other users.

A connection is anonymous until a request on it has a valid session. An anonymous connection must send a request within
seconds. If there are too many of them, the oldest is closed. Other connections count against the limit of their user.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one server."""

    head_seconds: float = 15.0  # from the connection to the end of the head of the first request
    idle_seconds: float = 75.0  # from one request to the end of the head of the next request
    body_seconds: float = 60.0  # between two parts of a request's body
    max_anonymous: int = 256
    max_per_user: int = 256


class Connections:
    """The open connections, by the protocol that serves each."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._anonymous: OrderedDict[asyncio.Protocol, GuardedConnection] = OrderedDict()
        self._owners: dict[asyncio.Protocol, str] = {}
        self._per_user: Counter[str] = Counter()

    def guard(self, make_protocol: Callable[[], asyncio.Protocol]) -> GuardedConnection:
        """Register a new, anonymous connection."""
        connection = GuardedConnection(make_protocol(), self._limits.head_seconds, self._on_lost)
        self._anonymous[connection.inner] = connection
        if len(self._anonymous) > self._limits.max_anonymous:
            _, oldest = self._anonymous.popitem(last=False)
            oldest.abort()
        return connection

    def request_started(self, inner: object) -> None:
        """Record that the head of a request has arrived."""
        if (connection := self._anonymous.get(inner)) is not None:  # type: ignore[call-overload]
            connection.request_started()

    def assign_user(self, inner: object, user: str) -> bool:
        """Assign a connection to the user of its session. Return False if the user has reached the limit."""
        assert isinstance(inner, asyncio.Protocol)
        if self._owners.get(inner) == user:
            return True
        if self._per_user[user] >= self._limits.max_per_user:
            return False
        self._release_user(inner)
        self._anonymous.pop(inner, None)
        self._owners[inner] = user
        self._per_user[user] += 1
        return True

    @property
    def count(self) -> int:
        return len(self._anonymous) + len(self._owners)

    def _on_lost(self, inner: asyncio.Protocol) -> None:
        self._anonymous.pop(inner, None)
        self._release_user(inner)

    def _release_user(self, inner: asyncio.Protocol) -> None:
        if (owner := self._owners.pop(inner, None)) is not None:
            self._per_user -= Counter([owner])  # removes counters of 0


class GuardedConnection(asyncio.Protocol):
    """A connection that is aborted if no request arrives in time. Everything else is delegated to `inner`."""

    def __init__(
        self, inner: asyncio.Protocol, seconds: float, on_lost: Callable[[asyncio.Protocol], None]
    ) -> None:
        self.inner = inner
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._aborted = False
        self._timeout = asyncio.get_running_loop().call_later(seconds, self.abort)
        self.data_received = inner.data_received  # type: ignore[method-assign]  # called most often
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.inner.connection_made(transport)
        if self._aborted:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)
        self.on_closed()

    def request_started(self) -> None:
        """Cancel the timeout."""
        self._timeout.cancel()

    def abort(self) -> None:
        """Abort the connection without a response."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def on_closed(self) -> None:
        """Clean up when the connection ends or its handshake fails. May be called twice."""
        self._timeout.cancel()
        self._on_lost(self.inner)
