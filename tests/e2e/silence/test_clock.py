"""The wall clock of a server and its agents jumps by an hour, forward or back, while a task runs.

Nothing is lost, no agent is fenced or shown as silent, and tasks are still started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_spec_pb2 import TaskSpec
from hai_backend.launch.local_launcher import sweep
from tests.silence import cluster, witness
from tests.silence.clock import Clock
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of processes that the test starts from now on."""
    made = Clock(tmp_path)
    for name, value in made.variables().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def server(tmp_path: Path, clock: Clock) -> Iterator[ServerProcess]:
    cluster.configure(tmp_path / "home")
    made = ServerProcess(tmp_path / "home", "--nodes", "2")
    made.start()
    yield made
    clock.jump(0)
    if made.running:
        made.end()
    sweep(made.home)  # the sweep runs in this process, which has the true time


def spec(directory: Path, *arguments: str) -> TaskSpec:
    """Return a task specification whose program has the true time."""
    made = cluster.task_spec(directory, *arguments)
    made.spec.environments["LD_PRELOAD"] = ""
    return made


@pytest.mark.parametrize("jumps", [(3600.0, 0.0), (-3600.0, 0.0)], ids=["forth", "back"])
async def test_a_clock_that_jumps_and_comes_back_disturbs_no_task(
    server: ServerProcess, clock: Clock, tmp_path: Path, jumps: tuple[float, ...]
) -> None:
    finish = tmp_path / "finish"
    async with Client(server.profile()) as client:
        task = (await client.tasks.create(spec(tmp_path, "--until", str(finish)))).id
        await cluster.until_running(client, task)
        for jump in jumps:
            clock.jump(jump)
            await asyncio.sleep(1.0)
            assert not (await client.tasks.get(task)).run.ranks[0].HasField("silent_since_time")
            short = await client.tasks.create(spec(tmp_path, "--steps", "2"))
            await cluster.undisturbed(client, short.id, [2], within=30)
        finish.touch()
        await client.tasks.wait(task, timeout=20)
        await cluster.undisturbed(client, task, [witness.steps(tmp_path, task) or 0], within=5)
