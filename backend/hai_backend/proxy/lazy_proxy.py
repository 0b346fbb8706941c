"""The proxy as the rest of the server sees it. The HTTP server is created with the first connection of a browser."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from hai_backend.api.server.certificates import Certificates
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task
from hai_backend.proxy.addresses import PROXY_PREFIX
from hai_backend.proxy.connections import ConnectionLimits
from hai_backend.proxy.proxy_deps import ProxyDeps

if TYPE_CHECKING:
    from hai_backend.proxy.server import ProxyServer

_LIMITS = ConnectionLimits()


class LazyProxy:
    """Implements api.containers.containers.Browsers."""

    def __init__(
        self, deps: ProxyDeps, certificates: Certificates | None, limits: ConnectionLimits = _LIMITS
    ) -> None:
        self._deps = deps
        self._certificates = certificates
        self._limits = limits
        self._server: ProxyServer | None = None
        self._start_lock = asyncio.Lock()

    def url(self, task_id: int, service: str) -> str:
        return self._deps.addresses.url(task_id, service)

    def link(self, identity: Identity, task: Task, service: str) -> str:
        """Return a one-time link. Raises Conflict if all tasks share one origin and the task belongs to another user.

        Within one origin, the page of a task can access all tasks that its visitor has open.
        """
        addresses = self._deps.addresses
        if addresses.by_path and task.user != identity.name:
            raise Conflict(
                f"task {task.id} belongs to {task.user}, and this server has one address for all tasks "
                "(http_paths): its pages could access yours, so only your own tasks can be opened",
                reason="ONE_ORIGIN",
            )
        origin, path = addresses.origin(task.id, service), addresses.cookie_path(task.id)
        query = {"key": self._deps.sessions.link_key(identity, task.id), "service": service}
        return f"{origin}{path}{PROXY_PREFIX}/login?{urlencode(query)}"

    async def receive(self, connection: socket.socket) -> None:
        """Serve one connection of a browser."""
        async with self._start_lock:
            if self._server is None:
                from hai_backend.proxy.server import ProxyServer

                self._server = await ProxyServer.start(self._deps, self._certificates, self._limits)
        await self._server.receive(connection)

    def check(self) -> None:
        """Close connections that are no longer allowed after a change of permissions."""
        if self._server is not None:
            self._server.check()

    async def close(self) -> None:
        """Close all connections. Browsers reconnect."""
        if self._server is not None:
            await self._server.close()
