"""Where browsers knock: the port is held from start to end, and who serves a connection changes with the server's role.

Connections are handed over raw: the leader speaks TLS and HTTP on them, a follower passes the bytes on to the leader.
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

_EVERYWHERE = (
    "0.0.0.0",
    "::",
)  # both: every address of this machine, of either kind, as gRPC takes them
_BACKLOG = 1024
_PIECE_BYTES = 64 * 1024
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 60, 15, 4  # a caller that has vanished is gone after both
_NOBODY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n"
    b"Content-Length: 42\r\nConnection: close\r\n\r\nno server leads just now: try again soon.\r\n"
)


async def nobody(connection: socket.socket) -> None:
    """No server leads. (To who speaks TLS this is nonsense, which it takes as a refusal.)"""
    with suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(connection, _NOBODY)
    connection.close()


class Listener:
    """Listens; `address` is where. Raises Unavailable when the address is taken."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _bound(host, port)
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._receive: Receive = nobody
        self._work: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to accept."""
        self._accepting = asyncio.ensure_future(self._accept())

    def to(self, receive: Receive) -> None:
        """From now on, connections go there."""
        self._receive = receive

    def close(self) -> None:
        """Accept no more."""
        if self._accepting is not None:
            self._accepting.cancel()
        for work in self._work:
            work.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # too many open files: those that are open may end
                log.warning("cannot accept a connection", why=str(error))
                await asyncio.sleep(1.0)
                continue
            connection.setblocking(False)
            work = asyncio.ensure_future(self._hand_over(connection))
            self._work.add(work)
            work.add_done_callback(self._handed_over)

    def _handed_over(self, work: asyncio.Task[None]) -> None:
        self._work.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.error("a connection of a browser failed", why=repr(error))

    async def _hand_over(self, connection: socket.socket) -> None:
        try:
            _mind_silence(connection)
            await self._receive(connection)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):  # a failed handshake, a caller that left
                raise


def _bound(host: str, port: int) -> socket.socket:
    try:
        held = _listening(host.strip("[]"), port)
        held.setblocking(False)
    except OSError as error:
        raise Unavailable(
            f"cannot listen for browsers on {host}:{port}: {error.strerror}", reason="CANNOT_LISTEN"
        ) from error
    return held


def _listening(host: str, port: int) -> socket.socket:
    if host in _EVERYWHERE and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
        )
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    family, *_, address = socket.getaddrinfo(host, port, type=kind, flags=passive)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def _mind_silence(connection: socket.socket) -> None:
    """A machine that sleeps or has lost its network says no goodbye: without this its streams stay for hours."""
    tcp, last = socket.IPPROTO_TCP, _IDLE_SECONDS + _PROBE_SECONDS * _PROBES
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    connection.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(tcp, socket.TCP_KEEPCNT, _PROBES)
    connection.setsockopt(tcp, socket.TCP_USER_TIMEOUT, last * 1000)  # while something is sent


def passed_on_to(host: str, port: int, own: str) -> Receive:
    """A follower's way: the bytes of a connection to the leader's own door and back. `own`: where ours listens."""

    async def receive(connection: socket.socket) -> None:
        if await _leads_back(host, port, own):  # each connection would make another, without end
            why = "servers on one machine need http_listen at different addresses"
            log.warning("the leader's door would be our own", address=f"{host}:{port}", why=why)
            await nobody(connection)
            return
        theirs = await asyncio.open_connection(host, port)
        ours = await asyncio.open_connection(sock=connection)
        ways = [
            asyncio.ensure_future(_pump(ours[0], theirs[1])),
            asyncio.ensure_future(_pump(theirs[0], ours[1])),
        ]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()
            for writer in (ours[1], theirs[1]):
                writer.transport.abort()

    return receive


async def _leads_back(host: str, port: int, own: str) -> bool:
    """Whether who calls that port there meets our own door, which has the same port."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing: it only chooses the route
        here, there = probe.getsockname()[0], probe.getpeername()[0]
    return here == there and own.strip("[]") in (*_EVERYWHERE, host, there)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
