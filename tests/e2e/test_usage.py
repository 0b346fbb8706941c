"""The use of two ranks is returned as series, also after a restart of the server. The audit has who stopped them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai.v1.usage_service_pb2 import ListTaskUsageResponse, UsagePoint
from hai_backend.launch.local_launcher import sweep
from tests.support.databases import default_database
from tests.support.servers import running_server
from tests.support.virtual_time import AheadClock

BURN = """
import time
while True:
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass
    time.sleep(0.2)
"""
_PATIENCE_SECONDS = 40.0


class Here:
    """A home directory in which servers are started one after the other, all with the same clock."""

    def __init__(self, home: Path, database: str) -> None:
        self.home = home
        self.clock = AheadClock()
        self._database = database

    @asynccontextmanager
    async def server(self) -> AsyncIterator[Client]:
        settings = {"nodes": 2, "database": self._database, "clock": self.clock}
        async with (
            running_server(self.home, **settings) as server,
            Client(server.profile) as client,
        ):
            leader = server.app.leader
            assert leader is not None
            self.write = leader.usage.write
            yield client

    async def minute(self) -> None:
        """Advance the clock by a minute, and wait until the server has written the minute."""
        self.clock.advance(60)
        await self.write()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with default_database() as database:
        yield Here(tmp_path / "home", database)
    sweep(tmp_path / "home")


async def until(
    client: Client, task_id: int, holds: Callable[[ListTaskUsageResponse], bool]
) -> ListTaskUsageResponse:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds(answer := await client.usage.of_task(task_id)):
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.2)  # agents measure every 10 seconds of real time
    return answer


def points(answer: ListTaskUsageResponse) -> list[int]:
    """Return the number of points of each rank."""
    return [len(series.points) for series in answer.ranks]


def first(answer: ListTaskUsageResponse) -> list[UsagePoint]:
    """Return the first point of each rank, which was written before the server stopped."""
    return [series.points[0] for series in answer.ranks]


async def test_what_ranks_burn_comes_back_over_a_restart(here: Here, tmp_path: Path) -> None:
    program = tmp_path / "burn.py"
    program.write_text(BURN)
    spec = TaskSpec(
        version=2,
        name="burn",
        spec=ProgramSpec(entrypoint=str(program)),
        resource=ResourceSpec(node_count=2),
    )
    async with here.server() as client:
        task = await client.tasks.create(spec)
        await until(client, task.id, lambda answer: len(points(answer)) == 2)
        await here.minute()
        before = await client.usage.of_task(task.id)
        assert [(s.rank, s.run) for s in before.ranks] == [(0, 1), (1, 1)]
        for series in before.ranks:
            assert 0.01 < series.points[0].cpus <= series.points[0].cpus_max < 8
            assert series.points[0].memory_bytes > 1 << 20
        cluster = await client.usage.of_cluster()
        assert (cluster.points[-1].nodes, cluster.points[-1].busy_nodes) == (2, 2)
    async with here.server() as client:
        assert first(await client.usage.of_task(task.id)) == first(before)
        await until(client, task.id, lambda answer: points(answer) > points(before))
        await client.tasks.stop(task.id)
        await client.tasks.wait(task.id, timeout=30)
        await here.minute()
        after = await client.usage.of_task(task.id, ranks=[1])
        assert points(after) >= [2]
        rows = [row async for row in client.audit.rows(method="StopTask")]
        assert [(row.actor, row.resource, row.code) for row in rows] == [
            ("admin", str(task.id), "OK")
        ]
