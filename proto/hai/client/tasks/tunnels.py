"""Tunnels that carry bytes to and from a port, a service or a shell in a rank of a task."""

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
_MAX_QUEUED = 4  # messages that may wait to be sent


class Tunnel:
    """The sending side of one tunnel. The call begins when its answers are read."""

    def __init__(self, opening: TunnelOpening) -> None:
        self._outgoing: asyncio.Queue[OpenTunnelRequest | None] = asyncio.Queue(_MAX_QUEUED)
        self._outgoing.put_nowait(OpenTunnelRequest(open=opening))

    async def send(self, data: bytes) -> None:
        """Send bytes to the target. This waits while the target does not read."""
        for begin in range(0, len(data), PIECE_BYTES):
            await self._outgoing.put(OpenTunnelRequest(data=data[begin : begin + PIECE_BYTES]))

    async def resize(self, size: TerminalSize) -> None:
        """Send the new size of the terminal to the target."""
        await self._outgoing.put(OpenTunnelRequest(resize=size))

    async def end(self) -> None:
        """Announce that nothing more is sent. Answers of the target can still be read."""
        await self._outgoing.put(None)

    async def requests(self) -> AsyncGenerator[OpenTunnelRequest, None]:
        """Yield the request messages of the call, for gRPC."""
        while (request := await self._outgoing.get()) is not None:
            yield request


class Tunnels:
    """Opens tunnels to ranks. Each tunnel is one call."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> TunnelServiceAsyncStub:
        return self._transport.stub(TunnelServiceStub)

    def open(
        self, id: int, target: TunnelTarget, *, rank: int = 0
    ) -> tuple[Tunnel, AsyncGenerator[OpenTunnelResponse, None]]:
        """Return a tunnel and its answers, of which the first is `opened`.

        Reading the answers raises an error if the tunnel cannot be opened or breaks.
        """
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
        """Return a tunnel to a command in a rank, on a terminal of this size or on pipes. The default is a shell."""
        shell = ShellTarget(command=command, terminal=terminal, term=term)
        return self.open(id, TunnelTarget(shell=shell), rank=rank)
