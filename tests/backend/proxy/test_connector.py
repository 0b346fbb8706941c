"""The transport over a tunnel: a failure in one direction ends the connection."""

from __future__ import annotations

import asyncio

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai.v1.tunnel_pb2 import TunnelTarget
from hai_backend.controllers.cluster.agents import ConnectedAgents, Session
from hai_backend.controllers.cluster.tunnels import Tunnel, Tunnels
from hai_backend.launch.base import RankKey
from hai_backend.proxy.connector import TunnelTransport

KEY = RankKey(7, 1, 0)


class Peer(asyncio.Protocol):
    """Receives data until a test makes it fail."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.heard = b""
        self.lost = asyncio.Event()
        self._failure = failure

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@pytest.fixture
def tunnels() -> Tunnels:
    hub = ConnectedAgents()
    hub.attach(KEY, Session())
    return Tunnels(hub)


async def test_bytes_and_end_reach_the_protocol(tunnels: Tunnels) -> None:
    peer, closed = Peer(), list[bool]()
    with tunnels.opened(KEY, TunnelTarget(port=22), "ada") as tunnel:
        TunnelTransport(tunnel, peer, lambda: closed.append(True))
        tunnel.receive_from_agent(pb.CarryRequest(data=b"out"))
        tunnel.end()
        await asyncio.wait_for(peer.lost.wait(), 5)
    assert (peer.heard, closed) == (b"out", [True])


@pytest.mark.parametrize(
    "failure", [ValueError("not http"), asyncio.CancelledError()], ids=["an error", "cancelled"]
)
async def test_direction_that_fails_ends_the_connection(
    tunnels: Tunnels, failure: BaseException
) -> None:
    """Or it would be held for ever, and the caller would wait."""
    peer, closed = Peer(failure), list[bool]()
    with tunnels.opened(KEY, TunnelTarget(port=22), "ada") as tunnel:
        transport = TunnelTransport(tunnel, peer, lambda: closed.append(True))
        reading = transport._tasks[0]
        tunnel.receive_from_agent(pb.CarryRequest(data=b"out"))
        await asyncio.wait_for(peer.lost.wait(), 5)
        await asyncio.gather(reading, return_exceptions=True)
    assert closed == [True]


async def test_write_that_fails_ends_the_connection(
    tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Tunnel, message: pb.CarryResponse) -> bool:
        raise ValueError("a bug")

    peer, closed = Peer(), list[bool]()
    monkeypatch.setattr(Tunnel, "send_to_rank", fails)
    with tunnels.opened(KEY, TunnelTarget(port=22), "ada") as tunnel:
        transport = TunnelTransport(tunnel, peer, lambda: closed.append(True))
        writing = transport._tasks[1]
        transport.write(b"in")
        await asyncio.wait_for(peer.lost.wait(), 5)
        await asyncio.gather(writing, return_exceptions=True)
    assert closed == [True]
