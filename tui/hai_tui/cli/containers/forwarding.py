"""Ports of this machine that lead to ports and services of a rank."""

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

_FORM = re.compile(r"(?:(\d{1,5}):)?(?:(\d{1,5})|([a-z0-9](?:[a-z0-9-]*[a-z0-9])?))")
_HIGHEST = 65535
_TABLES = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"


@dataclass(frozen=True, slots=True)
class Forward:
    """`local` 0: one that is free. A port, or else a service by name."""

    local: int
    port: int = 0
    service: str = ""

    @property
    def target(self) -> TunnelTarget:
        return TunnelTarget(service=self.service) if self.service else TunnelTarget(port=self.port)

    @property
    def remote(self) -> str:
        """For people."""
        return f"service {self.service}" if self.service else f"port {self.port}"


def parse(text: str) -> Forward:
    """PORT, LOCAL:PORT, SERVICE or LOCAL:SERVICE. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} is not PORT, LOCAL:PORT, SERVICE or LOCAL:SERVICE")
    local, port, service = match.groups()
    for number in filter(None, (local, port)):
        if int(number) > _HIGHEST or (number is port and not int(number)):
            raise click.UsageError(f"{text!r}: a port is a number from 1 to {_HIGHEST}")
    if service:
        return Forward(int(local or 0), service=service)
    return Forward(int(local if local is not None else port), port=int(port))


async def serve(
    client: Client,
    id: int,
    rank: int,
    address: str,
    forwards: Sequence[Forward],
    listening: Callable[[Forward, int], None],
    failed: Callable[[HaiError], None],
) -> None:
    """For ever. `listening` is told of each port, `failed` of each connection that could not be. Raises OSError."""
    servers: list[asyncio.Server] = []
    try:
        for forward in forwards:
            handle = _handler(client, id, rank, forward, failed)
            servers.append(await asyncio.start_server(handle, address, forward.local))
        try:
            await _watch_listeners(
                client, id, rank, list(zip(forwards, servers, strict=True)), failed
            )
        except (Conflict, Unreachable) as error:
            failed(error)
        for forward, server in zip(forwards, servers, strict=True):
            listening(forward, server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()
    finally:
        for server in servers:
            server.close()


async def _watch_listeners(
    client: Client,
    id: int,
    rank: int,
    pairs: Iterable[tuple[Forward, asyncio.Server]],
    failed: Callable[[HaiError], None],
) -> None:
    """Say where nothing listens yet. Raises UsageError: a port leads to itself, as its rank is on this machine."""
    listeners = await _listeners(client, id, rank)
    ports = {port for port, _ in listeners}
    for forward, server in pairs:
        own_inodes = {os.fstat(each.fileno()).st_ino for each in server.sockets}
        if any((forward.port, inode) in listeners for inode in own_inodes):
            raise UsageError(
                f"rank {rank} is on this machine, so its port {forward.port} is localhost:{forward.port} as it is:"
                f" nothing listens there; for another port here, say LOCAL:{forward.port}"
            )
        if listeners and forward.port and forward.port not in ports:
            failed(Conflict(f"nothing listens on port {forward.port} of rank {rank} yet"))


async def _listeners(client: Client, id: int, rank: int) -> set[tuple[int, int]]:
    """Port and inode of what listens in a rank; empty: unknown.

    It is read there, not tried: some programs, debuggers for one, take a single connection.
    """
    tunnel, answers = client.tunnels.shell(id, _TABLES, rank=rank)
    await tunnel.end()
    table = b"".join([answer.data async for answer in answers]).decode(errors="replace")
    rows = (line.split() for line in table.splitlines())
    listening = (row for row in rows if len(row) > 9 and row[3] == _LISTENS)
    return {(int(row[1].rpartition(":")[2], 16), int(row[9])) for row in listening}


def _handler(
    client: Client, id: int, rank: int, forward: Forward, failed: Callable[[HaiError], None]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel, answers = client.tunnels.open(id, forward.target, rank=rank)
        sending = asyncio.ensure_future(_send(tunnel, reader))
        try:
            await _receive(answers, writer)
        except HaiError as error:
            failed(error)
        finally:
            sending.cancel()
            await answers.aclose()
            writer.close()

    return handle


async def _send(tunnel: Tunnel, reader: asyncio.StreamReader) -> None:
    with suppress(OSError):  # also a caller that has vanished: ETIMEDOUT is no ConnectionError
        while data := await reader.read(PIECE_BYTES):
            await tunnel.send(data)
    await tunnel.end()


async def _receive(
    answers: AsyncGenerator[OpenTunnelResponse, None], writer: asyncio.StreamWriter
) -> None:
    with suppress(OSError):
        async for answer in answers:
            match answer.WhichOneof("message"):
                case "data":
                    writer.write(answer.data)
                    await writer.drain()
                case "end":
                    writer.write_eof()
