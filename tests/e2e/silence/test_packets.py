"""Packets between agents and a real server are dropped on loopback, in one or both directions, while tasks print."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai.client.client import Client
from tests.silence import cluster, witness
from tests.silence.network.namespaces import packets, require_namespaces
from tests.silence.network.proxy import BOTH, Direction, proxy_to
from tests.support.servers import ServerProcess

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("silence-packets")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    require_namespaces()
    home = tmp_path_factory.mktemp("packets")
    cluster.configure(home)
    made = ServerProcess(home, "--nodes", "2")
    made.start()
    yield made
    if made.running:
        made.end()
    made.sweep()


@pytest.mark.parametrize("ways", [BOTH, *[(way,) for way in Direction]], ids="-".join)
async def test_dropped_packets_lose_no_printing_task(
    server: ServerProcess, tmp_path: Path, ways: tuple[Direction, ...]
) -> None:
    """The agents' way leads by a proxy that passes everything: only their packets are dropped, not the client's."""
    direct, finish = server.address(), tmp_path / "finish"
    async with proxy_to(direct) as proxy, Client(server.profile()) as client:
        cluster.route_agents(server.home, proxy.address)
        try:
            spec = cluster.task_spec(tmp_path, "--until", str(finish), nodes=2)
            task = (await client.tasks.create(spec)).id
            await cluster.until_running(client, task)
            with packets(int(proxy.address.rpartition(":")[2])) as path:
                path.drop(*ways)
                await asyncio.sleep(cluster.SILENCE)
            finish.touch()
            within = 2 * cluster.SILENCE + cluster.BACK_WITHIN  # TCP repeats with growing pauses
            await client.tasks.wait(task, timeout=within)
            steps = [witness.steps(tmp_path, task, 1, rank) or 0 for rank in range(2)]
            await cluster.undisturbed(client, task, steps, within=5)
            await cluster.until_nodes_are_free(client)
        finally:
            cluster.route_agents(server.home, direct)
