"""A silent server loses nothing: it is stopped, or its bytes are held back, while tasks print.

Unlike with a killed server, calls *hang* here. With HAI_SILENCE_REAL_TIME=1, heartbeats and silence are as long as in
production.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from hai.client.client import Client
from tests.silence import cluster
from tests.silence.network.proxy import Direction, Proxy, proxy_to
from tests.support.servers import ServerProcess

STEPS, PACE = 30, 0.1
if cluster.REAL_TIME:
    STEPS, PACE = 120, 0.5
LIFE = STEPS * PACE

pytestmark = [pytest.mark.timeout(60 + 4 * cluster.SILENCE), pytest.mark.xdist_group("silence")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Started once; every test leaves it running and its nodes free."""
    home = tmp_path_factory.mktemp("silence")
    cluster.configure(home)
    made = ServerProcess(home, "--nodes", "4")
    made.start()
    yield made
    if made.running:
        made.end()
    made.sweep()


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[Client]:
    async with Client(server.profile()) as made:
        yield made


async def start(client: Client, directory: Path, *more: str, nodes: int = 2) -> int:
    spec = cluster.task_spec(
        directory, "--steps", str(STEPS), "--pace", str(PACE), *more, nodes=nodes
    )
    task = await client.tasks.create(spec)
    await cluster.until_running(client, task.id)
    return task.id


@pytest.mark.parametrize("after", [LIFE, 3 * LIFE], ids=["ends silent", "goes on"])
async def test_a_server_that_was_stopped_loses_no_printing_task(
    server: ServerProcess, client: Client, tmp_path: Path, after: float
) -> None:
    steps = round(after / PACE)
    task = await start(client, tmp_path, "--steps", str(steps))
    await asyncio.sleep(5 * PACE)
    assert server.process is not None
    with cluster.stopped([server.process.pid]):
        await asyncio.sleep(cluster.SILENCE)
    left = max(after - cluster.SILENCE - 5 * PACE, 0)

    async def printed_after() -> bool:
        seen = len(await cluster.lines(client, task))
        return seen >= min(steps, (cluster.SILENCE + 5 * PACE) / PACE)

    await cluster.until(printed_after, cluster.BACK_WITHIN, "lines of after the silence are here")
    await cluster.undisturbed(client, task, [steps] * 2, within=left + cluster.BACK_WITHIN)
    await cluster.until_nodes_are_free(client)


def closed(way: Direction) -> Callable[[Proxy], None]:
    def close(proxy: Proxy) -> None:
        proxy.half_open()
        proxy.hang_up(way)

    return close


@pytest.mark.parametrize(
    "silence",
    [
        pytest.param(Proxy.hold, id="bytes are held back"),
        pytest.param(lambda p: p.hold(Direction.FORTH), id="bytes to the server are held back"),
        pytest.param(lambda p: p.hold(Direction.BACK), id="bytes to the agents are held back"),
        pytest.param(Proxy.drop, id="connections carry nothing any more"),
        pytest.param(closed(Direction.FORTH), id="agents see a close, the server does not"),
        pytest.param(closed(Direction.BACK), id="the server sees a close, agents do not"),
    ],
)
async def test_a_silent_network_loses_no_printing_task(
    server: ServerProcess, client: Client, tmp_path: Path, silence: Callable[[Proxy], None]
) -> None:
    direct = server.address()
    async with proxy_to(direct) as proxy:
        cluster.route_agents(server.home, proxy.address)
        try:
            task = await start(client, tmp_path)
            await asyncio.sleep(5 * PACE)
            silence(proxy)
            await asyncio.sleep(cluster.SILENCE)
            await proxy.heal()
            left = max(LIFE - cluster.SILENCE, 0)
            await cluster.undisturbed(client, task, [STEPS] * 2, within=left + cluster.BACK_WITHIN)
            await cluster.until_nodes_are_free(client)
        finally:
            cluster.route_agents(server.home, direct)
