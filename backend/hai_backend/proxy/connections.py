"""Connections of browsers: who is slow on purpose, or opens them without end, takes nothing away from others.

A connection is a stranger's until it has shown a session. A stranger must have asked for something within seconds, and
of many strangers the one that came first makes room. What belongs to a user counts for that user alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server bears with."""

    head_seconds: float = 15.0  # from the connection to the end of the first request's head
    # between two requests of a connection, the head of the second included
    idle_seconds: float = 75.0
    body_seconds: float = 60.0  # between two pieces of a request's body
    strangers: int = 256
    per_user: int = 256


class Connections:
    """Those that are open, by the protocol that serves each."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._strangers: OrderedDict[asyncio.Protocol, Guarded] = OrderedDict()
        self._owners: dict[asyncio.Protocol, str] = {}
        self._per_user: Counter[str] = Counter()

    def guarded(self, make: Callable[[], asyncio.Protocol]) -> Guarded:
        """A new one, a stranger's."""
        connection = Guarded(make(), self._limits.head_seconds, self._lost)
        self._strangers[connection.inner] = connection
        if len(self._strangers) > self._limits.strangers:
            _, first = self._strangers.popitem(last=False)
            first.abort()
        return connection

    def asked(self, inner: object) -> None:
        """The head of a request is there."""
        if (stranger := self._strangers.get(inner)) is not None:  # type: ignore[call-overload]
            stranger.asked()

    def belongs(self, inner: object, user: str) -> bool:
        """A request on it has shown a session; False: the user has too many, and this one stays a stranger's."""
        assert isinstance(inner, asyncio.Protocol)
        if self._owners.get(inner) == user:
            return True
        if self._per_user[user] >= self._limits.per_user:
            return False
        self._forget(inner)
        self._strangers.pop(inner, None)
        self._owners[inner] = user
        self._per_user[user] += 1
        return True

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._strangers) + len(self._owners)

    def _lost(self, inner: asyncio.Protocol) -> None:
        self._strangers.pop(inner, None)
        self._forget(inner)

    def _forget(self, inner: asyncio.Protocol) -> None:
        if (owner := self._owners.pop(inner, None)) is not None:
            self._per_user -= Counter([owner])  # no trace is left of whoever has none


class Guarded(asyncio.Protocol):
    """A connection, ended when no request has come in time. All else is `inner`'s affair."""

    def __init__(
        self, inner: asyncio.Protocol, seconds: float, lost: Callable[[asyncio.Protocol], None]
    ) -> None:
        self.inner = inner
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._aborted = False
        self._waiting = asyncio.get_running_loop().call_later(seconds, self.abort)
        self.data_received = inner.data_received  # type: ignore[method-assign]  # the busiest one
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.inner.connection_made(transport)
        if self._aborted:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.inner.connection_lost(exc)
        self.gone()

    def asked(self) -> None:
        """In time."""
        self._waiting.cancel()

    def abort(self) -> None:
        """At once, with nothing said."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def gone(self) -> None:
        """It is over, or never was: a handshake has failed. Twice is not an error."""
        self._waiting.cancel()
        self._lost(self.inner)
