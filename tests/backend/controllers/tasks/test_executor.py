"""Instructions that cannot be carried out are logged."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.tasks.executor import Executor
from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task, TaskState
from hai_backend.launch.request import RunRequest
from tests.support.builders import a_spec
from tests.support.controller_harness import ControllerHarness

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/shared/checkpoints/1")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(Conflict("no such mount"), "no such mount", id="refused"),
        pytest.param(
            FULL, "[Errno 28] No space left on device: '/shared/checkpoints/1'", id="a full disk"
        ),
    ],
)
async def test_a_run_that_cannot_be_described_ends_in_words_and_is_tried_again(
    world: ControllerHarness, error: Exception, told: str
) -> None:
    async def describe(task: Task) -> RunRequest:
        raise error

    nodes = world.cluster.nodes().get
    world.executor = Executor(world.launcher, world.hub, str, nodes, describe)
    world.executor.task_manager = world.task_manager
    task = await world.task_manager.submit("ada", a_spec("one", 2), "")
    await world.scheduling.once()
    await world.until(lambda: world.task_manager.unfinished()[task.id].state is TaskState.SUSPENDED)
    ended = world.task_manager.unfinished()[task.id]
    assert ended.reason == f"rank 0 could not be launched on n0: {told}"
    assert (ended.launch_failure_count, ended.not_before > world.clock.now()) == (1, True)
    assert not world.launcher.ranks


async def test_an_instruction_that_was_cancelled_half_way_is_logged_and_the_next_is_performed(
    world: ControllerHarness,
) -> None:
    """Otherwise it would be treated as cancelled by the server, and the error would not be logged."""
    described: list[int] = []

    async def describe(task: Task) -> RunRequest:
        described.append(task.id)
        if len(described) == 1:
            part = asyncio.ensure_future(asyncio.Event().wait())
            part.cancel()
            await part
        return RunRequest()

    world.executor = Executor(world.launcher, world.hub, str, world.cluster.nodes().get, describe)
    world.executor.task_manager = world.task_manager
    with capture_logs() as logs:
        first = await world.task_manager.submit("ada", a_spec("one", 1), "")
        second = await world.task_manager.submit("ada", a_spec("two", 1), "")
        await world.scheduling.once()
        await world.until(lambda: len(described) == 2 and len(logs) > 0)
    assert [(log["event"], log["task"]) for log in logs if log["log_level"] == "error"] == [
        ("an instruction failed; it is derived again after a restart", described[0])
    ]
    assert sorted(described) == [first.id, second.id]
