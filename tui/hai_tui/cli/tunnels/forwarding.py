"""Forwards ports of this machine to ports and services of a rank."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from hai.client.errors import Conflict, HaiError, Unreachable, UsageError
from hai.client.tasks.tunnels import PIECE_BYTES, Tunnel
from hai.v1.tunnel_pb2 import TunnelTarget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hai.client.client import Client
    from hai.v1.tunnel_service_pb2 import OpenTunnelResponse

_FORWARD_FORM = re.compile(r"(?:(\d{1,5}):)?(?:(\d{1,5})|([a-z0-9](?:[a-z0-9-]*[a-z0-9])?))")
_MAX_PORT = 65535
_READ_SOCKET_TABLES = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
_LISTEN_STATE = "0A"


@dataclass(frozen=True, slots=True)
class Forward:
    """A local port and its target, which is a port or a service of the rank."""

    local: int  # 0 means any free port
    port: int = 0
    service: str = ""

    @property
    def target(self) -> TunnelTarget:
        return TunnelTarget(service=self.service) if self.service else TunnelTarget(port=self.port)

    @property
    def remote(self) -> str:
        """A description of the target for messages."""
        return f"service {self.service}" if self.service else f"port {self.port}"


def parse(text: str) -> Forward:
    """Parse PORT, LOCAL:PORT, SERVICE or LOCAL:SERVICE. Raise UsageError."""
    match = _FORWARD_FORM.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} is not PORT, LOCAL:PORT, SERVICE or LOCAL:SERVICE")
    local, port, service = match.groups()
    for number in filter(None, (local, port)):
        if int(number) > _MAX_PORT or (number is port and not int(number)):
            raise click.UsageError(f"{text!r}: a port is a number from 1 to {_MAX_PORT}")
    if service:
        return Forward(int(local or 0), service=service)
    return Forward(int(local if local is not None else port), port=int(port))


async def forward_ports(
    client: Client,
    id: int,
    rank: int,
    address: str,
    forwards: Sequence[Forward],
    on_listening: Callable[[Forward, int], None],
    on_error: Callable[[HaiError], None],
) -> None:
    """Forward connections until the task is cancelled. Raise OSError if a port cannot be opened.

    `on_listening` receives each opened port, `on_error` the error of each connection that failed.
    """
    servers: list[asyncio.Server] = []
    try:
        for forward in forwards:
            handle = _handler(client, id, rank, forward, on_error)
            servers.append(await asyncio.start_server(handle, address, forward.local))
        try:
            await _check_listeners(
                client, id, rank, list(zip(forwards, servers, strict=True)), on_error
            )
        except (Conflict, Unreachable) as error:
            on_error(error)
        for forward, server in zip(forwards, servers, strict=True):
            on_listening(forward, server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()
    finally:
        for server in servers:
            server.close()


async def _check_listeners(
    client: Client,
    id: int,
    rank: int,
    forwarded_ports: Iterable[tuple[Forward, asyncio.Server]],
    on_error: Callable[[HaiError], None],
) -> None:
    """Report target ports on which nothing listens yet.

    Raise UsageError for a port that leads to itself, because the rank is on this machine.
    """
    listeners = await _listeners(client, id, rank)
    ports = {port for port, _ in listeners}
    for forward, server in forwarded_ports:
        server_inodes = {os.fstat(each.fileno()).st_ino for each in server.sockets}
        if any((forward.port, inode) in listeners for inode in server_inodes):
            raise UsageError(
                f"rank {rank} is on this machine, so its port {forward.port} is localhost:{forward.port} as it is:"
                f" nothing listens there; for another port here, say LOCAL:{forward.port}"
            )
        if listeners and forward.port and forward.port not in ports:
            on_error(Conflict(f"nothing listens on port {forward.port} of rank {rank} yet"))


async def _listeners(client: Client, id: int, rank: int) -> set[tuple[int, int]]:
    """Return port and inode of each listening socket in a rank; empty if they are unknown.

    They are read from /proc, because a test connection could disturb programs that accept only one, such as debuggers.
    """
    tunnel, responses = client.tunnels.shell(id, _READ_SOCKET_TABLES, rank=rank)
    await tunnel.end()
    table = b"".join([response.data async for response in responses]).decode(errors="replace")
    rows = (line.split() for line in table.splitlines())
    on_listening = (row for row in rows if len(row) > 9 and row[3] == _LISTEN_STATE)
    return {(int(row[1].rpartition(":")[2], 16), int(row[9])) for row in on_listening}


def _handler(
    client: Client, id: int, rank: int, forward: Forward, on_error: Callable[[HaiError], None]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Return a handler that connects each accepted connection to the target through a tunnel."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel, responses = client.tunnels.open(id, forward.target, rank=rank)
        sending = asyncio.ensure_future(_send(tunnel, reader))
        try:
            await _receive(responses, writer)
        except HaiError as error:
            on_error(error)
        finally:
            sending.cancel()
            await responses.aclose()
            writer.close()

    return handle


async def _send(tunnel: Tunnel, reader: asyncio.StreamReader) -> None:
    with suppress(OSError):  # not ConnectionError, which does not include ETIMEDOUT
        while data := await reader.read(PIECE_BYTES):
            await tunnel.send(data)
    await tunnel.end()


async def _receive(
    responses: AsyncGenerator[OpenTunnelResponse, None], writer: asyncio.StreamWriter
) -> None:
    with suppress(OSError):
        async for response in responses:
            match response.WhichOneof("message"):
                case "data":
                    writer.write(response.data)
                    await writer.drain()
                case "end":
                    writer.write_eof()
