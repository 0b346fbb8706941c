"""The proxy as seen by the rest of the server. The server for browsers is created with the first connection."""

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
from hai_backend.proxy.dependencies import ProxyDeps

if TYPE_CHECKING:
    from hai_backend.proxy.server import ProxyServer

_LIMITS = ConnectionLimits()


class Facade:
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
        """See Browsers."""
        return self._deps.addresses.url(task_id, service)

    def link(self, identity: Identity, task: Task, service: str) -> str:
        """See Browsers. Within one origin, the page of a task can access all others that its visitor has open."""
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
        """Check open connections after a change of permissions."""
        if self._server is not None:
            self._server.check()

    async def close(self) -> None:
        """Close all connections; browsers reconnect."""
        if self._server is not None:
            await self._server.close()
