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
    return Task(
        1,
        "ada",
        a_spec("one", ack_within=0.05, save_within=0.05),
        TaskState.RUNNING,
        Priority.NORMAL,
        0.0,
        run=run,
    )


@pytest.mark.parametrize(
    ("ahead", "set_to"),
    [
        pytest.param(0.01, 0.0, id="the clock goes on"),
        pytest.param(0.01, -86_400.0, id="the clock is set back meanwhile"),
        pytest.param(86_400.0, 0.0, id="it was made by a clock that was a day ahead"),
    ],
)
async def test_a_timer_rings_once_with_its_deadline(ahead: float, set_to: float) -> None:
    clock = ManualClock()
    rung: asyncio.Queue[tuple[int, int, float]] = asyncio.Queue()
    timers = Timers(clock, lambda *told: rung.put_nowait(told))
    task = running(clock.now() + ahead)
    timers.set(task)
    clock.advance(set_to)
    assert await rung.get() == (1, 1, task.run.deadline)
    await asyncio.sleep(0.02)
    assert rung.empty()
    timers.close()
