"""Bytes to and from a port, a service or a shell in a rank of a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.tunnel_pb2 import ShellTarget, TerminalSize, TunnelTarget
from hai.v1.tunnel_service_pb2 import OpenTunnelRequest, OpenTunnelResponse, TunnelOpening
from hai.v1.tunnel_service_pb2_grpc import TunnelServiceStub

if TYPE_CHECKING:
    from hai.v1.tunnel_service_pb2_grpc import TunnelServiceAsyncStub

PIECE_BYTES = 64 * 1024
_PIECES = 4  # on their way at once; who sends more waits


class Tunnel:
    """What is sent through one connection; it begins when its answers are read."""

    def __init__(self, opening: TunnelOpening) -> None:
        self._outgoing: asyncio.Queue[OpenTunnelRequest | None] = asyncio.Queue(_PIECES)
        self._outgoing.put_nowait(OpenTunnelRequest(open=opening))

    async def send(self, data: bytes) -> None:
        """Send bytes to the target; waits while the target does not read."""
        for begin in range(0, len(data), PIECE_BYTES):
            await self._outgoing.put(OpenTunnelRequest(data=data[begin : begin + PIECE_BYTES]))

    async def resize(self, size: TerminalSize) -> None:
        """Tell the target the new size of the terminal."""
        await self._outgoing.put(OpenTunnelRequest(resize=size))

    async def end(self) -> None:
        """Send nothing more; answers of the target can still be read."""
        await self._outgoing.put(None)

    async def requests(self) -> AsyncGenerator[OpenTunnelRequest, None]:
        """The messages of the call, for gRPC."""
        while (request := await self._outgoing.get()) is not None:
            yield request


class Tunnels:
    """Tunnels to ranks; each tunnel is one call."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> TunnelServiceAsyncStub:
        return self._transport.stub(TunnelServiceStub)

    def open(
        self, id: int, target: TunnelTarget, *, rank: int = 0
    ) -> tuple[Tunnel, AsyncGenerator[OpenTunnelResponse, None]]:
        """A tunnel, and what comes out of it: first `opened`. Reading raises why it could not be, or why it broke."""
        tunnel = Tunnel(TunnelOpening(task_id=id, rank=rank, target=target))
        answers = self._transport.duplex(self._stub.OpenTunnel, tunnel.requests())
        return tunnel, answers

    def shell(
        self,
        id: int,
        command: Sequence[str] = (),
        *,
        rank: int = 0,
        terminal: TerminalSize | None = None,
        term: str = "",
    ) -> tuple[Tunnel, AsyncGenerator[OpenTunnelResponse, None]]:
        """A command in a rank (empty: the user's shell), on a terminal of this size or on pipes."""
        shell = ShellTarget(command=command, terminal=terminal, term=term)
        return self.open(id, TunnelTarget(shell=shell), rank=rank)
