"""Fencing when packets are dropped: each node is a network namespace, and TCP behaves as in a real network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai_backend.launch.base import RankKey
from hai_backend.launch.rank_dirs import path_of
from tests.silence import witness
from tests.silence.agents import Agents, agents, argv
from tests.silence.lease_server import LeaseServer, Rank, lease_server
from tests.silence.network.namespaces import Network, network, packets, require_namespaces
from tests.silence.network.proxy import BOTH, Direction
from tests.silence.schedules.schedule import TIMING

pytestmark = [pytest.mark.xdist_group("namespaces"), pytest.mark.timeout(120)]


@dataclass
class Nodes:
    """Two nodes, each with its own home directory, and a server that both can reach."""

    network: Network
    server: LeaseServer
    agents: Agents
    directory: Path

    def home(self, node: int) -> Path:
        return self.directory / f"node{node}"

    @property
    def port(self) -> int:
        return int(self.server.address.rpartition(":")[2])

    async def start(self, run: int, node: int, *arguments: str) -> Rank:
        """Start a run of task 1 on a node, and return once its program has started."""
        words, prefix = argv(self.directory, arguments), self.network.prefix(node)
        return await self.agents.start(self.home(node), RankKey(1, run, 0), words, *prefix)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    require_namespaces()
    with network(2) as net:
        async with (
            lease_server(tmp_path, TIMING, f"{net.address}:0") as server,
            agents(server) as started,
        ):
            made = Nodes(net, server, started, tmp_path)
            for node in range(2):
                server.write_address(made.home(node))
            yield made


@pytest.mark.parametrize(
    ("ways", "how"),
    [
        pytest.param(BOTH, "", id="both ways, prints"),
        pytest.param(BOTH, "--silent", id="both ways, is silent"),
        pytest.param((Direction.FORTH,), "--silent", id="to the server, is silent"),
        pytest.param((Direction.BACK,), "", id="to the agent, prints"),
    ],
)
async def test_a_node_that_is_cut_off_has_ended_its_program_when_the_next_run_starts(
    nodes: Nodes, ways: tuple[Direction, ...], how: str
) -> None:
    words = ["--stubborn", "--pace", "0.05", *filter(None, [how])]
    rank = await nodes.start(1, 0, *words)
    await asyncio.sleep(TIMING.heartbeat * 2)
    with packets(nodes.port, nodes.network.nodes[0]) as path:
        path.drop(*ways)
        await asyncio.wait_for(rank.until_ended_by_time(), 10 * TIMING.fence_after)
        assert witness.is_free(nodes.directory, 1), "the program runs on beside its successor"
        after = await nodes.start(2, 1, *words, "--steps", "5")
        async with asyncio.timeout(20):
            await after.exited.wait()
    assert after.exit_code == 0
    reason = path_of(nodes.home(0), RankKey(1, 1, 0)) / "failure.txt"
    assert "lease" in reason.read_text()


async def test_a_short_silence_of_packets_ends_nothing(nodes: Nodes) -> None:
    rank = await nodes.start(1, 0, "--steps", "60", "--pace", "0.05")
    with packets(nodes.port, nodes.network.nodes[0]) as path:
        path.drop()
        await asyncio.sleep(0.25 * TIMING.lease)
        path.heal()
        healed_at = time.monotonic()
        async with asyncio.timeout(20):
            await rank.exited.wait()
    assert rank.exit_code == 0
    assert rank.renewed_at > healed_at
    printed = [line for line in nodes.server.lines(RankKey(1, 1, 0)) if line.startswith("run ")]
    assert printed == [f"run 1 step {step}" for step in range(60)]
