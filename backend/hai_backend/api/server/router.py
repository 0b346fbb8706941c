"""Who answers calls just now: the services of this server, the server that leads, or nobody.

The gRPC server listens from start to end; what answers behind it changes with the server's role.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

import grpc
from grpc import aio

from hai_backend.api.server import errors
from hai_backend.api.server.handler_wrapper import Context, Handler
from hai_backend.api.server.interceptors import Gate, abort
from hai_backend.domain.errors import NoLeader

OURS = "/hai."
Find: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"


class Answering(Protocol):
    """One who answers."""

    async def handler(self, find: Find, details: grpc.HandlerCallDetails) -> Handler | None:
        """What answers this call; `find` knows health and reflection."""
        ...


class Router(aio.ServerInterceptor):
    """Outermost interceptor; the only one."""

    def __init__(self) -> None:
        self._answering: Answering = Nobody()

    def to(self, answering: Answering) -> None:
        """From now on, calls go there."""
        self._answering = answering

    async def intercept_service(
        self, continuation: Find, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See Answering."""
        return await self._answering.handler(continuation, details)


class Here:
    """The services of this server. Not `fresh`: it was asleep, and cannot know whether another leads by now."""

    def __init__(
        self,
        gate: Gate,
        handlers: Mapping[str, Handler],
        fresh: Callable[[], bool] = lambda: True,
    ) -> None:
        self._gate = gate
        self._handlers = handlers
        self._fresh = fresh

    async def handler(self, find: Find, details: grpc.HandlerCallDetails) -> Handler | None:
        """See Answering."""
        if not self._fresh():
            return await Nobody("this server was asleep").handler(find, details)
        found = self._handlers.get(details.method) or await find(details)
        return None if found is None else self._gate.guarded(details.method, found)


class Nobody:
    """Refuses what only a leader can answer."""

    def __init__(self, why: str = "no server leads just now") -> None:
        self._why = why

    async def handler(self, find: Find, details: grpc.HandlerCallDetails) -> Handler | None:
        """See Answering."""
        if not details.method.startswith(OURS):
            return await find(details)
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: AsyncIterator[bytes], context: Context) -> Any:
        await abort(context, errors.status_of(NoLeader(f"{self._why}; try again in a moment"), ""))
