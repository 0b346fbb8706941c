"""The proxy as the rest of the server knows it; what serves browsers is made with the first one."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from hai_backend.api.server.certificates import Certificates
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task
from hai_backend.proxy.addresses import OURS
from hai_backend.proxy.connections import Limits
from hai_backend.proxy.dependencies import ProxyDeps

if TYPE_CHECKING:
    from hai_backend.proxy.server import ProxyServer

_LIMITS = Limits()


class Facade:
    """Implements api.containers.containers.Browsers."""

    def __init__(
        self, rooms: ProxyDeps, certificates: Certificates | None, limits: Limits = _LIMITS
    ) -> None:
        self._rooms = rooms
        self._certificates = certificates
        self._limits = limits
        self._server: ProxyServer | None = None
        self._one = asyncio.Lock()

    def url(self, task_id: int, service: str) -> str:
        """See Browsers."""
        return self._rooms.addresses.url(task_id, service)

    def link(self, identity: Identity, task: Task, service: str) -> str:
        """See Browsers. Below one origin the page of a task reaches all others that its visitor has open."""
        where = self._rooms.addresses
        if where.by_path and task.user != identity.name:
            raise Conflict(
                f"task {task.id} belongs to {task.user}, and this server has one address for all tasks "
                "(http_paths): its pages could use yours, so nobody else's open",
                reason="ONE_ORIGIN",
            )
        origin, path = where.origin(task.id, service), where.cookie_path(task.id)
        query = {"key": self._rooms.sessions.link_key(identity, task.id), "service": service}
        return f"{origin}{path}{OURS}/login?{urlencode(query)}"

    async def receive(self, connection: socket.socket) -> None:
        """One connection of a browser."""
        async with self._one:
            if self._server is None:
                from hai_backend.proxy.server import ProxyServer

                self._server = await ProxyServer.started(
                    self._rooms, self._certificates, self._limits
                )
        await self._server.receive(connection)

    def check(self) -> None:
        """Who may do what has changed."""
        if self._server is not None:
            self._server.check()

    async def close(self) -> None:
        """End every connection; browsers come back by themselves."""
        if self._server is not None:
            await self._server.close()
