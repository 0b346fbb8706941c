"""The scheduling loop: the input of passes, the thread in which it is converted, and failed passes."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from threading import get_ident

import pytest

from hai_backend.controllers.scheduling.loop import SchedulingLoop
from hai_backend.controllers.scheduling.snapshot import ending
from hai_backend.domain.progress import Progress
from hai_backend.domain.scheduling.plan import Plan
from hai_backend.domain.scheduling.snapshot import Ending
from hai_backend.domain.task import Task
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.recorded_input import PassInput
from tests.support.builders import a_task
from tests.support.controller_harness import ControllerHarness, NoAccounts


class Seen(Task):
    """A task that records the threads that read it."""

    threads: set[int] = set()  # noqa: RUF012 - of all instances

    @property
    def waiting(self) -> bool:
        self.threads.add(get_ident())
        return True


class Failing:
    """A recorder that fails after pass number `at`."""

    def __init__(self, at: int) -> None:
        self.passes = 0
        self._at = at

    def before(self, board: SchedulerCache) -> SchedulerCache:
        return board

    def after(self, shown: PassInput, plan: Plan) -> None:
        self.passes += 1
        if self.passes == self._at:
            raise RuntimeError("a mistake")


def an_ending(task: int) -> Ending:
    return ending(replace(a_task(task), run_seconds=20.0))


async def test_tasks_are_looked_at_in_the_thread_of_the_pass(world: ControllerHarness) -> None:
    """After a start, all tasks are converted, which would block the event loop."""
    task = a_task(7)
    seen = Seen(**{field.name: getattr(task, field.name) for field in fields(task)})
    world.scheduling.changed(seen)
    await world.scheduling.once()
    assert seen.threads
    assert get_ident() not in seen.threads


@pytest.mark.parametrize("at", [1, 2])
async def test_a_pass_that_fails_forgets_nothing_that_was_learned(
    world: ControllerHarness, at: int
) -> None:
    recorder = Failing(at)
    scheduling = SchedulingLoop(
        world.task_manager, world.cluster, NoAccounts(), world.clock, Policy(), recorder=recorder
    )
    learned = [an_ending(1), an_ending(2)]
    scheduling.learn(learned)
    loop = asyncio.ensure_future(scheduling.run())
    for done in range(1, 4):
        scheduling.wakeup.notify()
        await world.until(lambda done=done: recorder.passes == done)  # type: ignore[misc]
    assert [*(await scheduling.snapshot()).endings] == learned
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


async def test_a_pass_follows_the_checkpoint_of_a_protected_run(
    world: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint ends its protection, and an urgent task may wait for its nodes."""
    task = replace(a_task(7), progress=Progress(unsaved_suspensions=2))
    monkeypatch.setattr(world.task_manager, "unfinished", lambda: {7: task})
    recorder = Failing(at=0)
    scheduling = SchedulingLoop(
        world.task_manager, world.cluster, NoAccounts(), world.clock, Policy(), recorder=recorder
    )
    loop = asyncio.ensure_future(scheduling.run())
    await world.until(lambda: recorder.passes == 1)
    scheduling.saved(7, 1, 5.0)
    await world.until(lambda: recorder.passes == 2)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
