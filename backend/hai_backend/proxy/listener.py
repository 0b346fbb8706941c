"""Listens for browsers. The port is open for the lifetime of the server.

The receiver of connections depends on the role of the server: the leader serves TLS and HTTP on them, and a follower
forwards the bytes to the leader.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from hai_backend.domain.errors import Unavailable

log = structlog.get_logger(__name__)

Receive = Callable[[socket.socket], Awaitable[None]]

_WILDCARDS = ("0.0.0.0", "::")  # each means all IPv4 and IPv6 addresses, as in gRPC
_BACKLOG = 1024
_CHUNK_BYTES = 64 * 1024
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 60, 15, 4  # a vanished peer is noticed after all of them
_NO_LEADER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n"
    b"Content-Length: 42\r\nConnection: close\r\n\r\nno server leads just now: try again soon.\r\n"
)


async def refuse(connection: socket.socket) -> None:
    """Respond that no server leads. A TLS client receives invalid data and treats it as a refusal."""
    with suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(connection, _NO_LEADER)
    connection.close()


class Listener:
    """Listens at `address`. Raises Unavailable if the address is in use."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _bind(host, port)
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._receive: Receive = refuse
        self._work: set[asyncio.Task[None]] = set()
        self._accept_task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start to accept connections."""
        self._accept_task = asyncio.ensure_future(self._accept())

    def set_receiver(self, receive: Receive) -> None:
        """Pass new connections to this function from now on."""
        self._receive = receive

    def close(self) -> None:
        """Stop accepting connections."""
        if self._accept_task is not None:
            self._accept_task.cancel()
        for task in self._work:
            task.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # too many open files: wait until some are closed
                log.warning("cannot accept a connection", why=str(error))
                await asyncio.sleep(1.0)
                continue
            connection.setblocking(False)
            task = asyncio.ensure_future(self._handle(connection))
            self._work.add(task)
            task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("connection of a browser failed", why=repr(error))

    async def _handle(self, connection: socket.socket) -> None:
        try:
            _enable_keepalive(connection)
            await self._receive(connection)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):  # a failed handshake, or a closed connection
                raise


def _bind(host: str, port: int) -> socket.socket:
    try:
        server_socket = _create_server(host.strip("[]"), port)
        server_socket.setblocking(False)
    except OSError as error:
        raise Unavailable(
            f"cannot listen for browsers on {host}:{port}: {error.strerror}", reason="CANNOT_LISTEN"
        ) from error
    return server_socket


def _create_server(host: str, port: int) -> socket.socket:
    if host in _WILDCARDS and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
        )
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    family, *_, address = socket.getaddrinfo(host, port, type=kind, flags=passive)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def _enable_keepalive(connection: socket.socket) -> None:
    """Enable keep-alive probes, so that connections of machines that sleep or lose their network are closed."""
    tcp, idle_limit = socket.IPPROTO_TCP, _IDLE_SECONDS + _PROBE_SECONDS * _PROBES
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    connection.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(tcp, socket.TCP_KEEPCNT, _PROBES)
    # While data are being sent
    connection.setsockopt(tcp, socket.TCP_USER_TIMEOUT, idle_limit * 1000)


def forward_to(host: str, port: int, own_host: str) -> Receive:
    """Return a receiver that forwards connections to the leader's proxy. `own_host` is where this server listens."""

    async def receive(connection: socket.socket) -> None:
        if await _is_own_address(host, port, own_host):  # each connection would open another one
            why = "servers on one machine need http_listen at different addresses"
            log.warning("the leader's address is our own", address=f"{host}:{port}", why=why)
            await refuse(connection)
            return
        leader = await asyncio.open_connection(host, port)
        browser = await asyncio.open_connection(sock=connection)
        pumps = [
            asyncio.ensure_future(_pump(browser[0], leader[1])),
            asyncio.ensure_future(_pump(leader[0], browser[1])),
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            for writer in (browser[1], leader[1]):
                writer.transport.abort()

    return receive


async def _is_own_address(host: str, port: int, own_host: str) -> bool:
    """Say whether an address leads to the listener of this server, which has the same port."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing, only selects the route
        local_address, leader_address = probe.getsockname()[0], probe.getpeername()[0]
    return local_address == leader_address and own_host.strip("[]") in (
        *_WILDCARDS,
        host,
        leader_address,
    )


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
