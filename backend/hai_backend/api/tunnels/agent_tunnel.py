"""The agent's side of a tunnel, as the server sees it: bytes from the target to the caller, and the other way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hai.v1 import agent_service_pb2 as pb
from hai_backend.controllers.cluster.tunnels import Tunnel
from hai_backend.domain.errors import Conflict, Invalid, Unavailable

_LOST = "the connection to the rank was lost; it comes back by itself: try again"


async def carry(
    hello: pb.CarryHello, tunnel: Tunnel, requests: AsyncIterator[pb.CarryRequest]
) -> AsyncIterator[pb.CarryResponse]:
    """Answers to the agent, until the tunnel has ended."""
    if hello.refused:
        tunnel.end(Conflict(hello.refused, reason="CANNOT_REACH"))
        return
    tunnel.carried()
    taking = asyncio.ensure_future(_take(tunnel, requests))
    try:
        while (message := await tunnel.to_rank.take()) is not None:
            yield message
    finally:
        taking.cancel()
        tunnel.end(Unavailable(_LOST))


async def _take(tunnel: Tunnel, requests: AsyncIterator[pb.CarryRequest]) -> None:
    """What the target says. A command has ended with its code, a connection when both directions have."""
    try:
        async for request in requests:
            tunnel.receive_from_agent(request)
            match request.WhichOneof("message"):
                case "end":
                    tunnel.end_half()
                case "exit_code":
                    tunnel.end()
    except Invalid:
        pass  # it cannot be read
    finally:
        tunnel.end(Unavailable(_LOST))
