"""A failed direction of a tunnel ends the tunnel. Otherwise the other side would wait forever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hai.v1 import agent_service_pb2 as agent
from hai.v1.tunnel_pb2 import TunnelTarget
from hai.v1.tunnel_service_pb2 import OpenTunnelRequest
from hai_backend.api.tunnels.agent_tunnel import _receive
from hai_backend.api.tunnels.service import _send
from hai_backend.controllers.cluster.agents import ConnectedAgents, Session
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.domain.errors import Unavailable
from hai_backend.launch.base import RankKey

KEY = RankKey(7, 1, 0)
ENDS = [
    pytest.param(RuntimeError("a bug"), id="an error"),
    pytest.param(asyncio.CancelledError(), id="cancelled"),
]


@pytest.fixture
def tunnels() -> Tunnels:
    hub = ConnectedAgents()
    hub.attach(KEY, Session())
    return Tunnels(hub)


@pytest.mark.parametrize("end", ENDS)
async def test_tunnel_is_closed_when_the_caller_fails(tunnels: Tunnels, end: BaseException) -> None:
    async def requests() -> AsyncIterator[OpenTunnelRequest]:
        yield OpenTunnelRequest(data=b"in")
        raise end

    with tunnels.opened(KEY, TunnelTarget(port=22), "ada") as tunnel:
        with pytest.raises(type(end)):
            await _send(requests(), tunnel)
        assert isinstance(tunnel.why, Unavailable)
        assert await tunnel.next_for_caller() is None


@pytest.mark.parametrize("end", ENDS)
async def test_tunnel_is_closed_when_the_agent_fails(tunnels: Tunnels, end: BaseException) -> None:
    async def requests() -> AsyncIterator[agent.CarryRequest]:
        yield agent.CarryRequest(data=b"out")
        raise end

    with tunnels.opened(KEY, TunnelTarget(port=22), "ada") as tunnel:
        with pytest.raises(type(end)):
            await _receive(tunnel, requests())
        assert isinstance(tunnel.why, Unavailable)
        heard = await tunnel.next_for_caller()
        assert heard is not None
        assert heard.data == b"out"
        assert await tunnel.next_for_caller() is None
