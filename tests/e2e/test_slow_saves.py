"""A program that saves longer than its `save_within`, with a real server, agent and program."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_pb2 import TaskState
from tests.support.deployment import Deployment, process_deployment
from tests.support.servers import ServerProcess

SUSPENDED = TaskState.TASK_STATE_SUSPENDED
SAVES = """
import sys, time, hai
from hai.task.current_channel import current
parts = int(sys.argv[1])
hai.checkpoint_saved(0.01, step=28)
print("running", flush=True)
while not hai.receive_suspend_command():
    time.sleep(0.02)
for part in range(parts):
    current().set_save_progress(part << 20, parts << 20)
    print("part", part, flush=True)
    time.sleep(0.1)
current().set_save_progress(0, 0)
hai.go_suspend()
"""


@pytest.fixture
async def here(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    async with process_deployment(tmp_path, save_within_max=request.param) as made:
        yield made


async def suspend(here: Deployment, parts: int) -> int:
    task = await here.client.tasks.create(here.spec("slow", SAVES, str(parts), save_within=0.8))
    await here.until_printed(task.id, "running")
    await here.client.tasks.suspend(task.id, hold=True)
    await here.client.tasks.wait(task.id, "suspended", timeout=30)
    return task.id


@pytest.mark.parametrize("here", [120.0], indirect=True)
async def test_a_save_has_time_while_bytes_are_saved(here: Deployment) -> None:
    kinds = await here.kinds(await suspend(here, parts=30))
    assert "Yielded" in kinds
    assert "SuspendForced" not in kinds


async def test_a_restart_of_the_server_takes_no_time_from_a_save(
    server: ServerProcess, tmp_path: Path
) -> None:
    profile = await asyncio.to_thread(server.start)
    async with Client(profile) as client:
        here = Deployment(client, tmp_path, tmp_path)
        task = await client.tasks.create(here.spec("slow", SAVES, "50", save_within=0.8))
        await here.until_printed(task.id, "running")
        await client.tasks.suspend(task.id, hold=True)
        await here.until_printed(task.id, "part 15")
        server.end(signal.SIGKILL)
        await asyncio.to_thread(server.start)
        await client.tasks.wait(task.id, "suspended", timeout=30)
        kinds = await here.kinds(task.id)
        assert "Yielded" in kinds
        assert "SuspendForced" not in kinds


CHECKPOINT = """
import sys, time, hai
from hai.task import checkpoint

def write(file):
    for _ in range(60):
        file.write(bytes(1 << 20))
        time.sleep(0.05)

if checkpoint.latest() is not None:
    print("continued", flush=True)
    sys.exit()
print("running", flush=True)
while not hai.receive_suspend_command():
    time.sleep(0.02)
checkpoint.save("checkpoint", write, step=7)
hai.go_suspend()
"""


@pytest.mark.parametrize("here", [120.0], indirect=True)
async def test_a_slow_checkpoint_is_completed_and_the_next_run_continues(here: Deployment) -> None:
    task = await here.client.tasks.create(here.spec("slow", CHECKPOINT, save_within=0.8))
    await here.until_printed(task.id, "running")
    await here.client.tasks.suspend(task.id)
    await here.until_printed(task.id, "continued")
    kinds = await here.kinds(task.id)
    assert "Yielded" in kinds
    assert "SuspendForced" not in kinds


@pytest.mark.parametrize("here", [1.5], indirect=True)
async def test_a_save_that_takes_too_long_is_told(here: Deployment) -> None:
    id = await suspend(here, parts=100)
    task = await here.client.tasks.get(id)
    assert task.state == SUSPENDED
    (told,) = [e.reason for e in await here.client.tasks.events(id) if e.kind == "SuspendForced"]
    facts = r"[0-9]+ of 100 MiB after [0-9]+ s"
    advice = r"Raise save_within to about [0-9]+ s\."
    what = rf"Run 1 was ended while it saved \({facts}\)\. It continues from step 28.*\. {advice}"
    assert re.fullmatch(what, told)
    assert told in task.reason
    assert told in task.run.reason
    answer = await here.client.tasks.explain(id)
    assert any(told in line for line in answer.history)
