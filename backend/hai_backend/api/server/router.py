"""Routes calls: to the services of this server, to the leading server, or to a refusal.

The gRPC server listens from start to end. The route changes with the role of this server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

import grpc
from grpc import aio

from hai_backend.api.server import errors
from hai_backend.api.server.call_context import Context, Handler
from hai_backend.api.server.call_guard import CallGuard, abort
from hai_backend.domain.errors import NoLeader

HAI_PREFIX = "/hai."  # of the methods of our own services
FindBuiltin: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"
"""Finds the handler of a health or reflection call."""


class Route(Protocol):
    """Chooses the handler of each call."""

    async def find_handler(
        self, find_builtin: FindBuiltin, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler of this call, or None for an unknown method."""
        ...


class Router(aio.ServerInterceptor):
    """The only interceptor of the gRPC server."""

    def __init__(self) -> None:
        self._route: Route = RefusalRoute()

    def route_to(self, route: Route) -> None:
        """Send all further calls along this route."""
        self._route = route

    async def intercept_service(
        self, continuation: FindBuiltin, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        return await self._route.find_handler(continuation, details)


class LocalRoute:
    """Leads to the services of this server.

    `is_lease_fresh` is false after this machine was asleep: another server may lead by then.
    """

    def __init__(
        self,
        guard: CallGuard,
        handlers: Mapping[str, Handler],
        is_lease_fresh: Callable[[], bool] = lambda: True,
    ) -> None:
        self._guard = guard
        self._handlers = handlers
        self._is_lease_fresh = is_lease_fresh

    async def find_handler(
        self, find_builtin: FindBuiltin, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if not self._is_lease_fresh():
            route = RefusalRoute("this server was asleep")
            return await route.find_handler(find_builtin, details)
        handler = self._handlers.get(details.method) or await find_builtin(details)
        return None if handler is None else self._guard.wrap_handler(details.method, handler)


class RefusalRoute:
    """Refuses every call of our own services with NoLeader."""

    def __init__(self, why: str = "no server leads just now") -> None:
        self._why = why

    async def find_handler(
        self, find_builtin: FindBuiltin, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if not details.method.startswith(HAI_PREFIX):
            return await find_builtin(details)
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: AsyncIterator[bytes], context: Context) -> Any:
        await abort(context, errors.status_of(NoLeader(f"{self._why}; try again in a moment"), ""))
