"""Deadlines expire at the right time even if the wall clock is changed."""

from __future__ import annotations

import asyncio

import pytest

from hai_backend.controllers.tasks.deadlines import Deadlines
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.lifecycle.limits import Limits
from hai_backend.testing import ManualClock
from tests.support.builders import a_spec


def running(deadline: float, asked_at: float = 2e6, *, acknowledged: bool = False) -> Task:
    ranks = (Rank(0, "n0", state=RankState.RUNNING),)
    run = Run(
        number=1,
        state=RunState.SUSPENDING,
        ranks=ranks,
        created_at=0.0,
        priority=Priority.NORMAL,
        deadline=deadline,
        asked_at=asked_at,
        acknowledged_at=asked_at if acknowledged else None,
    )
    return Task(
        1,
        "ada",
        a_spec("one", ack_within=0.05, save_within=0.1),
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
    timers = Deadlines(clock, lambda *told: rung.put_nowait(told))
    task = running(clock.now() + ahead)
    timers.set(task)
    clock.advance(set_to)
    assert await rung.get() == (1, 1, task.run.deadline)
    await asyncio.sleep(0.02)
    assert rung.empty()
    timers.close()


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0], ids=["ahead", "back"])
async def test_a_clock_that_jumps_takes_no_time_from_a_program_that_saves(jump: float) -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    rung: asyncio.Queue[float] = asyncio.Queue()
    timers = Deadlines(clock, lambda *_: rung.put_nowait(loop.time()))
    began, task = loop.time(), running(clock.now() + 0.1, acknowledged=True)
    timers.set(task)
    clock.advance(jump)
    timers.set(task)  # an unrelated change of the task: a second rank has acknowledged
    assert 0.1 <= await rung.get() - began < 0.15
    timers.close()


@pytest.mark.parametrize(
    ("asked", "acknowledged", "least", "most"),
    [
        pytest.param(-60.0, False, 0.15, 0.19, id="asked before this server led: it is asked anew"),
        pytest.param(-60.0, True, 0.2, 0.3, id="acknowledged then: it has its time to save"),
        pytest.param(0.0, False, 0.15, 0.19, id="asked by this server before its agent was back"),
        pytest.param(1.0, False, 0.0, 0.1, id="asked when agents were back: its time is over"),
    ],
)
async def test_a_program_has_its_time_from_when_agents_are_back(
    asked: float, acknowledged: bool, least: float, most: float
) -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    rung: asyncio.Queue[float] = asyncio.Queue()
    began, limits = loop.time(), Limits(return_within=0.1)
    timers = Deadlines(clock, lambda *_: rung.put_nowait(loop.time()), limits)
    timers.set(running(clock.now() - 55.0, clock.now() + asked, acknowledged=acknowledged))
    took = await rung.get() - began
    timers.close()
    assert least <= took < most


async def test_no_deadline_is_met_before_agents_may_come_back() -> None:
    clock, rung = ManualClock(), asyncio.Queue[int]()
    limits = Limits(return_within=0.05)
    timers = Deadlines(clock, lambda task, *_: rung.put_nowait(task), limits, paused=True)
    task = running(clock.now() - 1.0, asked_at=clock.now() - 2.0)
    timers.set(task)
    await asyncio.sleep(0.15)  # longer than the time of the program
    assert rung.empty()
    began = asyncio.get_running_loop().time()
    timers.begin([task])
    assert await rung.get() == 1
    assert asyncio.get_running_loop().time() - began >= 0.1
    timers.close()
