"""Serves connections of browsers that the listener accepts.

lazy_proxy.py imports this module with the first connection, because the import of aiohttp is slow.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from hai_backend.api.server.certificates import Certificates
from hai_backend.proxy.connections import ConnectionLimits, Connections
from hai_backend.proxy.proxy_deps import ProxyDeps
from hai_backend.proxy.requests import Requests
from hai_backend.proxy.sockets import Sockets

_HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 0.5


class ProxyServer:
    """The HTTP server for browsers. Create it with `start`."""

    def __init__(
        self, deps: ProxyDeps, certificates: Certificates | None, limits: ConnectionLimits
    ) -> None:
        self._certificates = certificates
        self._connections = Connections(limits)
        self._sockets = Sockets(deps)
        self._requests = Requests(deps, self._connections, self._sockets, limits.body_seconds)
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
    async def start(
        cls, deps: ProxyDeps, certificates: Certificates | None, limits: ConnectionLimits
    ) -> ProxyServer:
        """Create a server that accepts connections."""
        server = cls(deps, certificates, limits)
        await server._runner.setup()
        return server

    async def receive(self, connection: socket.socket) -> None:
        """Serve one connection of a browser."""
        assert self._runner.server is not None
        tls = None if self._certificates is None else self._certificates.context
        guard = self._connections.guard(self._runner.server)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guard,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_SECONDS,
            )
        except BaseException:
            guard.on_closed()
            raise

    async def close(self) -> None:
        """Close all connections. Browsers reconnect."""
        await self._sockets.close(_SHUTDOWN_SECONDS)
        await self._requests.close()
        await self._runner.cleanup()

    def check(self) -> None:
        """Close connections that are no longer allowed after a change of permissions."""
        self._sockets.check()
