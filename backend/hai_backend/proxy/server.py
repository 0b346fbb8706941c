"""Serves connections of browsers that the door accepts.

Only facade.py loads this, with the first browser: aiohttp takes its time.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from hai_backend.api.server.certificates import Certificates
from hai_backend.proxy.connections import Connections, Limits
from hai_backend.proxy.dependencies import ProxyDeps
from hai_backend.proxy.requests import Requests
from hai_backend.proxy.sockets import Sockets

_HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 0.5


class ProxyServer:
    """Make it with `started`."""

    def __init__(self, rooms: ProxyDeps, certificates: Certificates | None, limits: Limits) -> None:
        self._certificates = certificates
        self._connections = Connections(limits)
        self._sockets = Sockets(rooms)
        self._requests = Requests(rooms, self._connections, self._sockets, limits.body_seconds)
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._requests.handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=limits.idle_seconds,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )

    @classmethod
    async def started(
        cls, rooms: ProxyDeps, certificates: Certificates | None, limits: Limits
    ) -> ProxyServer:
        """Ready for connections."""
        server = cls(rooms, certificates, limits)
        await server._runner.setup()
        return server

    async def receive(self, connection: socket.socket) -> None:
        """One connection of a browser."""
        assert self._runner.server is not None
        tls = None if self._certificates is None else self._certificates.context
        guarded = self._connections.guarded(self._runner.server)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guarded,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_SECONDS,
            )
        except BaseException:
            guarded.gone()
            raise

    async def close(self) -> None:
        """End every connection; browsers come back by themselves."""
        await self._sockets.close(_SHUTDOWN_SECONDS)
        await self._requests.close()
        await self._runner.cleanup()

    def check(self) -> None:
        """Who may do what has changed."""
        self._sockets.check()
