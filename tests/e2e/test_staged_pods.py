"""Checkpoints that pods leave in the memory of their node, and the pods that write them, with real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hai_backend.launch import processes
from tests.small_disk import fill, small_disk
from tests.support.deployment import Deployment, pod_deployment

from .test_staged_checkpoints import SAVES, go_on, steps, suspend


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The directory in memory of all nodes. The command of writers is in PATH, as in their image."""
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    path = Path("/dev/shm") / f"hai-test-{os.getpid()}-{tmp_path.name}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def full_disk(memory: Path, tmp_path: Path) -> AsyncIterator[tuple[Deployment, Path]]:
    """A deployment, and a file on the disk of its checkpoints, which is full until the file is removed."""
    table = {"agent_image": "any/hai:1", "staging_path": str(memory)}
    async with pod_deployment(tmp_path, table=table) as here:
        with small_disk(here.home / "checkpoints", 32) as disk:
            yield here, fill(disk, but=1 << 20)  # enough for a note, but not for a checkpoint


def staged(memory: Path) -> list[str]:
    return sorted(path.suffix for path in memory.glob("*/*/*/*.*"))


def leftovers(memory: Path) -> list[Path]:
    """Return what is in the directories of tasks."""
    return list(memory.glob("*/*/*"))


def writers(memory: Path) -> list[int]:
    """Return the processes of the writers of a directory."""
    found = []
    for process in processes.all_processes():
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
            if b"--until-released" in words and any(os.fsencode(memory) in word for word in words):
                found.append(process.pid)
    return found


async def until_clean(memory: Path) -> None:
    """Wait until no writer runs and nothing is left of it."""
    async with asyncio.timeout(20):
        while writers(memory) or leftovers(memory):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.1)


async def test_a_pod_ends_before_its_checkpoint_is_on_disk(
    full_disk: tuple[Deployment, Path], memory: Path
) -> None:
    here, filling = full_disk
    task_id = await suspend(here)
    assert staged(memory) == [".data", ".json"]
    assert steps(here.home, task_id) == []
    assert len(writers(memory)) == 1
    assert "SuspendForced" not in await here.kinds(task_id)
    filling.unlink()
    line = await go_on(here.client, task_id)
    assert line.split()[0::2] == ["from", "True"]
    assert int(line.split()[1]) > 0
    await until_clean(memory)
    assert len(steps(here.home, task_id)) == 1


async def test_the_next_pod_on_the_node_reads_from_memory(
    full_disk: tuple[Deployment, Path], memory: Path
) -> None:
    here, filling = full_disk
    task_id = await suspend(here)
    (node,) = {rank.node for run in await here.client.tasks.runs(task_id) for rank in run.ranks}
    (other,) = {"node1", "node2"} - {node}
    await here.client.nodes.cordon(other, "test")
    line = await go_on(here.client, task_id)
    assert line.split()[0::2] == ["from", "True"]
    filling.unlink()
    await until_clean(memory)


async def test_a_pod_on_another_node_waits_until_it_is_on_disk(
    full_disk: tuple[Deployment, Path], memory: Path
) -> None:
    here, filling = full_disk
    task_id = await suspend(here)
    (node,) = {rank.node for run in await here.client.tasks.runs(task_id) for rank in run.ranks}
    await here.client.nodes.cordon(node, "test")
    await here.client.tasks.resume(task_id)
    await here.until_printed(task_id, f"waiting until node {node} has written m")
    filling.unlink()
    await here.client.tasks.wait(task_id, timeout=60)
    last = [line for line in await here.lines(task_id) if line.startswith("from")][-1]
    assert last.split()[0::2] == ["from", "True"]
    assert "CheckpointLost" not in await here.kinds(task_id)
    await until_clean(memory)
    assert not list((here.home / "checkpoints").glob(f"{task_id}/.*"))  # no note is left


async def test_a_killed_writer_loses_nothing(
    full_disk: tuple[Deployment, Path], memory: Path
) -> None:
    here, filling = full_disk
    task_id = await suspend(here)
    (first,) = writers(memory)
    os.kill(first, signal.SIGKILL)
    filling.unlink()
    async with asyncio.timeout(20):
        while not steps(here.home, task_id):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.1)
    await until_clean(memory)


async def test_a_drain_waits_until_all_is_on_disk(
    full_disk: tuple[Deployment, Path], memory: Path
) -> None:
    here, filling = full_disk
    task = await here.client.tasks.create(here.spec("saves", SAVES))
    await here.until_printed(task.id, "from 0")
    node = await here.hands.node_of(f"hai-{task.id}-1-0")
    words = ("drain", node, "--delete-emptydir-data", "--timeout=60s")
    draining = asyncio.ensure_future(here.hands.kubectl(*words))
    async with asyncio.timeout(20):
        while not writers(memory):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.1)
    assert not draining.done()
    filling.unlink()
    await draining
    assert len(steps(here.home, task.id)) == 1
    line = await go_on(here.client, task.id)
    assert line.split()[0::2] == ["from", "True"]
