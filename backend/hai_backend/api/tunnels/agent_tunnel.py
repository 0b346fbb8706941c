"""Carries the bytes of a tunnel between the server and an agent, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hai.v1 import agent_service_pb2 as pb
from hai_backend.controllers.cluster.tunnels import Tunnel
from hai_backend.domain.errors import Conflict, Invalid, Unavailable

_CONNECTION_LOST = "the connection to the rank was lost; try again in a moment"


async def carry(
    hello: pb.CarryHello, tunnel: Tunnel, requests: AsyncIterator[pb.CarryRequest]
) -> AsyncIterator[pb.CarryResponse]:
    """Yield the messages for the agent until the tunnel ends."""
    if hello.refused:
        tunnel.end(Conflict(hello.refused, reason="CANNOT_REACH"))
        return
    tunnel.confirm_reached()
    receiver = asyncio.ensure_future(_receive(tunnel, requests))
    try:
        while (message := await tunnel.to_rank.take()) is not None:
            yield message
    finally:
        receiver.cancel()
        tunnel.end(Unavailable(_CONNECTION_LOST))


async def _receive(tunnel: Tunnel, requests: AsyncIterator[pb.CarryRequest]) -> None:
    """Pass on what the target sends. A command ends with its exit code, a connection after both directions."""
    try:
        async for request in requests:
            tunnel.receive_from_agent(request)
            match request.WhichOneof("message"):
                case "end":
                    tunnel.end_direction()
                case "exit_code":
                    tunnel.end()
    except Invalid:
        pass  # an undecodable message
    finally:
        tunnel.end(Unavailable(_CONNECTION_LOST))
