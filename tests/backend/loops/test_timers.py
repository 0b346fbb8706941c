"""A deadline is met whatever the clock does."""

from __future__ import annotations

import asyncio

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.loops.timers import Timers
from hai_backend.testing import ManualClock, a_spec


def running(deadline: float) -> Task:
    ranks = (Rank(0, "n0", state=RankState.RUNNING),)
    run = Run(
        number=1,
        state=RunState.SUSPENDING,
        ranks=ranks,
        created_at=0.0,
        priority=Priority.NORMAL,
        deadline=deadline,
    )
    return Task(1, "ada", a_spec("one"), TaskState.RUNNING, Priority.NORMAL, 0.0, run=run)


@pytest.mark.parametrize(
    ("passes", "rings"),
    [
        pytest.param(0.0, True, id="the clock was set back: it rings again"),
        pytest.param(1.0, False, id="the deadline has passed: once is enough"),
    ],
)
async def test_a_timer_that_rang_before_its_deadline(passes: float, rings: bool) -> None:
    clock, rung = ManualClock(), asyncio.Event()
    timers = Timers(clock, lambda task_id, run: rung.set())
    task = running(clock.now() + 0.01)
    timers.set(task)
    await rung.wait()
    rung.clear()
    clock.advance(passes)
    timers.again(task)
    if rings:
        await rung.wait()
    else:
        await asyncio.sleep(0.02)
        assert not rung.is_set()
    timers.close()
