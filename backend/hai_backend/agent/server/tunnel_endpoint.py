"""The endpoint of a tunnel in the rank: a connection or a command.

Its output is read only as fast as the caller reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import tunnel_pb2
from hai_backend.agent.output.descriptor import PIECE_BYTES

_CONNECT_SECONDS = 5.0


class Unreachable(Exception):
    """The target cannot be reached. The message says why and what to do."""


class CannotServe(Exception):
    """A service cannot be started. The message says why and what to do."""


class TunnelEndpoint(Protocol):
    """The target of a tunnel. A connection has no terminal, so it ignores `resize`."""

    def messages(self) -> AsyncIterator[pb.CarryRequest]:
        """Yield the output of the target as messages to the caller. The last message marks the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write bytes of the caller to the target."""
        ...

    def resize(self, size: tunnel_pb2.TerminalSize) -> None:
        """Apply a new size of the caller's terminal."""
        ...

    def end_input(self) -> None:
        """Close the input of the target, because the caller will send nothing more."""
        ...

    async def close(self) -> None:
        """Close the connection, or end the command."""
        ...


class Connection:
    """A connection to a socket in the rank. Implements TunnelEndpoint."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def messages(self) -> AsyncIterator[pb.CarryRequest]:
        """See TunnelEndpoint."""
        with suppress(ConnectionError):
            while data := await self._reader.read(PIECE_BYTES):
                yield pb.CarryRequest(data=data)
        yield pb.CarryRequest(end=tunnel_pb2.TunnelEnd())

    async def write(self, data: bytes) -> None:
        """See TunnelEndpoint."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    def resize(self, size: tunnel_pb2.TerminalSize) -> None:
        """See TunnelEndpoint."""

    def end_input(self) -> None:
        """See TunnelEndpoint."""
        with suppress(OSError):
            self._writer.write_eof()

    async def close(self) -> None:
        """See TunnelEndpoint."""
        self._writer.transport.abort()


async def connect_to_port(port: int) -> Connection:
    """Connect to a TCP port on the loopback interface. Raises Unreachable."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return Connection(*await asyncio.open_connection("localhost", port))
    except (OSError, TimeoutError):
        raise Unreachable(f"nothing listens on port {port} of this rank") from None


async def connect_to_socket(path: Path) -> Connection:
    """Connect to a unix socket. Raises Unreachable."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return Connection(*await asyncio.open_unix_connection(path))
    except (OSError, TimeoutError):
        raise Unreachable("it does not answer") from None
