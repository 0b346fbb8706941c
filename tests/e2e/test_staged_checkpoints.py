"""A task leaves its node as soon as its checkpoint is in memory, and goes on from there, with real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.task import checkpoint_files
from hai.v1.task_pb2 import TaskOutcome
from hai_backend.launch import processes
from hai_backend.launch.staging import default_root
from tests.small_disk import fill, small_disk
from tests.support.deployment import Deployment, process_deployment
from tests.support.servers import server_process

SUCCEEDED = TaskOutcome.TASK_OUTCOME_SUCCEEDED
SAVES = """
import os, sys, time, hai
from hai.task import checkpoint
content = bytes(8 << 20)
found = checkpoint.read_latest("m")
first = found[0].step if found else 0
print("from", first, bool(found) and bytes(found[1]) == content, flush=True)
for step in range(first, first + 50):
    if hai.receive_suspend_command():
        checkpoint.save("m", lambda file: file.write(content), step=step + 1, size=len(content))
        hai.go_suspend()
    time.sleep(0.02 if first == 0 else 0)
    if first == 0:
        time.sleep(0.2)
"""


def steps(home: Path, task_id: int) -> list[int]:
    """Return the steps of the durable checkpoints of a task."""
    target = home / "checkpoints" / str(task_id) / "m"
    return [found.step for found in checkpoint_files.published(target)]


def staged(home: Path) -> list[str]:
    return sorted(path.suffix for path in default_root(home).glob("*/*"))


async def suspend(here: Deployment, **options: object) -> int:
    task = await here.client.tasks.create(here.spec("saves", SAVES, **options))
    await here.until_printed(task.id, "from 0")
    await here.client.tasks.suspend(task.id, hold=True)
    await here.client.tasks.wait(task.id, "suspended", timeout=30)
    return task.id


async def until_written(client: Client, task_id: int) -> None:
    """Wait until the last checkpoint of the run is known to be on disk."""
    async with asyncio.timeout(20):
        while not (await client.tasks.get(task_id)).run.HasField("write_seconds"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def go_on(client: Client, task_id: int) -> str:
    """Resume a task, wait until it has ended, and return the last line that it printed."""
    await client.tasks.resume(task_id)
    task = await client.tasks.wait(task_id, timeout=60)
    assert task.outcome == SUCCEEDED
    lines = [line.text async for a in client.logs.tail(task_id) for line in a.lines]
    return [line for line in lines if line.startswith("from")][-1]


@pytest.fixture(params=[0])
async def full_disk(tmp_path: Path, request: pytest.FixtureRequest):
    """A deployment, and a file on the disk of its checkpoints, which is full until the file is removed."""
    async with process_deployment(tmp_path) as here:
        with small_disk(here.home / "checkpoints", 32) as disk:
            yield here, fill(disk, but=request.param)


async def test_a_task_leaves_before_its_checkpoint_is_on_disk(full_disk):
    here, filling = full_disk
    task_id = await suspend(here)
    assert staged(here.home) == [".data", ".json"]
    assert steps(here.home, task_id) == []
    assert "SuspendForced" not in await here.kinds(task_id)
    filling.unlink()
    line = await go_on(here.client, task_id)
    assert line.split()[0::2] == ["from", "True"]
    assert int(line.split()[1]) > 0


async def test_it_goes_on_from_memory_while_the_disk_is_full(full_disk):
    here, _ = full_disk
    line = await go_on(here.client, await suspend(here))
    assert line.split()[0::2] == ["from", "True"]


@pytest.mark.parametrize("full_disk", [1 << 20], indirect=True)
async def test_the_loss_of_the_memory_is_told(full_disk):
    here, filling = full_disk
    task_id = await suspend(here)
    filling.unlink()
    # The writer sleeps after it has failed, so it has not written the checkpoint yet.
    for path in default_root(here.home).glob("*/*"):
        path.unlink(missing_ok=True)
    await go_on(here.client, task_id)
    lost = [e for e in await here.client.tasks.events(task_id) if e.kind == "CheckpointLost"]
    assert [re.sub("[0-9]+", "N", event.reason) for event in lost] == [
        "checkpoint of step N was lost with the memory of node nodeN; continues from the beginning"
    ]


async def test_a_task_that_must_be_durable_stays_until_its_checkpoint_is_on_disk(tmp_path):
    async with process_deployment(tmp_path) as here:
        task_id = await suspend(here, durable="before_leaving")
        assert len(steps(here.home, task_id)) == 1
        assert staged(here.home) == []


def _pids(home: Path) -> list[int]:
    """Return the server and the checkpoint writers of a home."""
    root = os.fsencode(default_root(home))
    found = []
    for process in processes.all_processes():
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            if root in file.read().split(b"\0"):
                found.append(process.pid)
    return found


async def test_a_kill_of_server_and_writer_loses_no_checkpoint(tmp_path):
    with (
        server_process("--nodes", "1") as server,
        small_disk(server.home / "checkpoints", 32) as disk,
    ):
        filling = fill(disk)
        async with Client(server.profile()) as client:
            here = Deployment(client, tmp_path, server.home)
            task_id = await suspend(here)
        server.end(signal.SIGKILL)
        for pid in _pids(server.home):
            os.kill(pid, signal.SIGKILL)
        assert staged(server.home) == [".data", ".json"]
        filling.unlink()
        server.start()
        async with Client(server.profile()) as client:
            line = await go_on(client, task_id)
        assert line.split()[0::2] == ["from", "True"]


async def test_the_times_to_save_to_write_and_to_load_are_known_for_each_run(tmp_path):
    async with process_deployment(tmp_path) as here:
        task_id = await suspend(here)
        await until_written(here.client, task_id)
        await go_on(here.client, task_id)
        first, second = await here.client.tasks.runs(task_id)
        assert 0 < first.save_seconds < first.write_seconds + 20
        assert not first.HasField("load_seconds")
        assert 0 < second.load_seconds < 20
        found = await here.client.tasks.get(task_id)
        assert found.goodput.loading_seconds == pytest.approx(second.load_seconds)


async def test_the_next_task_of_the_same_name_is_warned_if_it_has_less_time_to_save(tmp_path):
    async with process_deployment(tmp_path) as here:
        assert not (await here.client.tasks.create(here.spec("other", SAVES))).warnings
        task_id = await suspend(here)
        await go_on(here.client, task_id)
        (warning,) = (
            await here.client.tasks.create(here.spec("saves", SAVES, save_within=1))
        ).warnings
        assert warning.startswith(f"task {task_id} with the same name took ")
        assert warning.endswith("Set save_within to about 5 s.")
