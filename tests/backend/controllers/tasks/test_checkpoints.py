"""Reports of checkpoints are limited to possible times, written rarely, and complete at the end of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.metrics.interruptions import Interruptions
from hai_backend.controllers.tasks.checkpoints import Checkpoints, Report, merged
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.goodput import History
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec, a_task
from tests.support.controller_harness import ControllerHarness

RUN = Run(1, RunState.RUNNING, (Rank(0, "n0", started_at=100.0),), 90.0, Priority.LOW)


@pytest.mark.parametrize(
    ("known", "report", "now", "saved_at", "saves", "cost"),
    [
        pytest.param(Progress(), Report(4.0, 1, 50.0), 160.0, 150.0, 1, 4.0, id="honest"),
        pytest.param(Progress(), Report(4.0), 160.0, 160.0, 1, 4.0, id="without a time: now"),
        pytest.param(Progress(), Report(0.0), 160.0, 160.0, 1, None, id="without a cost"),
        pytest.param(Progress(), Report(4.0, 1, 9e9), 160.0, 160.0, 1, 4.0, id="never in the future"),
        pytest.param(Progress(saved_at=7.0, saves=5), Report(4.0), 160.0, 160.0, 6, 4.0, id="a later run"),
        pytest.param(Progress(saved_at=150.0), Report(4.0, 1, 1.0), 160.0, 150.0, 1, None, id="never back, so no cost"),
        pytest.param(Progress(saved_at=158.0), Report(99.0), 160.0, 160.0, 1, 2.0, id="bounded by the last one"),
        pytest.param(Progress(), Report(99.0), 160.0, 160.0, 1, 60.0, id="bounded by the start"),
        pytest.param(Progress(), Report(99.0, 4), 160.0, 160.0, 4, 15.0, id="four of them neither"),
        pytest.param(Progress(), Report(1.0, 2**31 - 1), 160.0, 160.0, 60_000, 0.001, id="a thousand a second at most"),
        pytest.param(Progress(save_seconds=8.0), Report(4.0), 160.0, 160.0, 1, 7.0, id="smoothed"),
        pytest.param(Progress(), Report(4.0), 50.0, 50.0, 1, None, id="the clock was set back"),
    ],
)  # fmt: skip
def test_what_is_reported_is_bounded_by_what_is_measured(
    known: Progress, report: Report, now: float, saved_at: float, saves: int, cost: float | None
) -> None:
    found, _ = merged(known, RUN, 0, report, now)
    assert (found.saved_at, found.saves) == (saved_at, saves)
    assert found.save_seconds == (None if cost is None else pytest.approx(cost))


class Counting(MemoryStore):
    """A store that counts writes of tasks, and refuses them while `full`."""

    writes = 0
    full = False

    async def save_task(self, task: Task, *more: Any) -> Task | None:
        if self.full:
            raise Unavailable("the disk of the database is full")
        self.writes += 1
        return await super().save_task(task, *more)


class Place:
    """The controllers with a task that runs on two nodes. Tests send the reports of its programs."""

    def __init__(self, every: float) -> None:
        self.store = Counting()
        self.world = ControllerHarness(self.store, FakeLauncher([Node("n0"), Node("n1")]))
        self.clock = self.world.clock
        self.told: list[tuple[int, int, float]] = []
        self.checkpoints = Checkpoints(self.clock, lambda *said: self.told.append(said), every)
        self.task_manager = self.world.task_manager
        # As the server does when it creates the task manager.
        self.task_manager._with_unsaved = self.checkpoints.with_unsaved
        self.checkpoints.task_manager = self.task_manager

    async def start(self) -> None:
        await self.world.start()
        task = await self.task_manager.submit("ada", a_spec(nodes=2), "")
        await self.task_manager.apply(task.id, ev.RunPlaced(("n0", "n1"), Priority.LOW, "free"))
        await self.world.attach_all(task.id)
        for rank in (0, 1):
            await self.task_manager.apply(1, ev.ProgramStarted(1, rank))
        self.clock.advance(60)
        self.store.writes = 0

    def report(self, *said: float, rank: int = 0, run: int = 1, task: int = 1, **more: int) -> None:
        self.checkpoints.report(RankKey(task, run, rank), Report(*said, **more))

    async def stored(self) -> Progress:
        task = await self.store.get_task(1)
        assert task is not None
        return task.progress

    def known(self) -> Progress:
        return self.checkpoints.with_unsaved(self.task_manager.unfinished()[1]).progress


@pytest.fixture
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    made = Place(every=getattr(request, "param", 1000.0))
    await made.start()
    yield made
    await made.checkpoints.close()
    await made.world.stop()


async def test_reports_add_up_in_memory_and_are_not_written_one_by_one(place: Place) -> None:
    for _ in range(100):
        place.clock.advance(1)
        place.report(0.25)
    assert (place.known().saves, place.known().save_seconds) == (100, 0.25)
    assert len(place.told) == 100
    assert place.told[-1] == (1, 1, place.clock.now())
    assert place.store.writes == 0


@pytest.mark.parametrize("place", [0.0], indirect=True)
async def test_they_are_written_after_a_while_without_a_line(place: Place) -> None:
    lines = len(await place.store.task_events(1))
    place.report(0.25)
    version = place.task_manager.feed.version
    await asyncio.wait_for(place.task_manager.feed.beyond(version), 5)
    assert (await place.stored()).saves == 1
    assert place.task_manager.unfinished()[1] == await place.store.get_task(1)
    assert len(await place.store.task_events(1)) == lines
    assert place.store.writes == 1


async def test_the_step_of_the_last_checkpoint_is_known(place: Place) -> None:
    place.report(0.25, step=28)
    assert place.known().saved_step == 28
    place.clock.advance(1)
    place.report(0.25)
    assert place.known().saved_step is None  # not the step of an earlier checkpoint


async def test_the_longest_of_the_last_saves_is_known(place: Place) -> None:
    for seconds, longest in ((2.0, 2.0), (8.0, 8.0), (4.0, 7.0), (0.0, 7.0), (9.0, 9.0)):
        place.clock.advance(20)
        place.report(seconds)
        assert place.known().longest_save == longest


async def test_a_run_knows_its_last_save_and_all_saving_counts(place: Place) -> None:
    for seconds in (2.0, 4.0):
        place.clock.advance(20)
        place.report(seconds)
    place.checkpoints.report_written(1, 1, 9.0)
    task = place.checkpoints.with_unsaved(place.task_manager.unfinished()[1])
    assert task.run is not None
    assert (task.run.save_seconds, task.run.write_seconds) == (4.0, 9.0)
    assert task.progress.saving_seconds == 6.0
    await place.task_manager.flush(1)
    assert await place.store.get_task(1) == place.task_manager.unfinished()[1]
    assert place.task_manager.unfinished()[1].run == task.run


async def test_a_save_after_the_request_to_leave_counts_as_leaving(place: Place) -> None:
    await place.task_manager.suspend(1, "ada", hold=True, delay=0)
    place.clock.advance(20)
    place.report(2.0)
    assert (place.known().saves, place.known().saving_seconds) == (1, 0.0)


async def test_a_write_after_the_end_of_a_run_is_stored(place: Place) -> None:
    place.report(0.25)
    await place.task_manager.suspend(1, "ada", hold=True, delay=0)
    await place.task_manager.apply(1, ev.Yielded(1, 0))
    for rank in (0, 1):
        await place.task_manager.apply(1, ev.RankGone(1, rank))
    place.checkpoints.remove(1)  # as the server does
    version = place.task_manager.feed.version
    place.checkpoints.report_written(1, 1, 9.0)
    await asyncio.wait_for(place.task_manager.feed.beyond(version), 5)
    task = await place.store.get_task(1)
    assert task is not None
    assert task.state is TaskState.SUSPENDED
    assert task.run is not None
    assert (task.run.save_seconds, task.run.write_seconds) == (0.25, 9.0)


@pytest.mark.parametrize(("task", "run"), [(1, 2), (9, 1)])
async def test_a_write_of_an_unknown_run_is_ignored(place: Place, task: int, run: int) -> None:
    place.checkpoints.report_written(task, run, 9.0)
    await place.checkpoints.close()
    assert place.store.writes == 0


async def test_any_write_takes_them_along(place: Place) -> None:
    place.report(0.25)
    await place.task_manager.set_rank(1, "ada", 2.0)
    assert (await place.stored()).saves == 1
    await place.task_manager.flush(1)
    assert place.store.writes == 1  # no further write was needed


async def test_the_end_of_a_run_knows_of_the_last_one(place: Place) -> None:
    place.report(0.25)
    place.clock.advance(7)
    for rank in (0, 1):
        await place.task_manager.apply(1, ev.ProgramExited(1, rank, 1))
        await place.task_manager.apply(1, ev.RankGone(1, rank))
    assert (await place.stored()).lost_seconds == 7


async def test_a_stopped_server_writes_what_is_left(place: Place) -> None:
    place.report(0.25)
    await place.checkpoints.close()
    assert (await place.stored()).saves == 1


async def test_a_full_disk_costs_nothing_but_precision(place: Place) -> None:
    place.report(0.25)
    place.store.full = True
    with capture_logs() as logs:
        await place.checkpoints.close()
    assert [entry["event"] for entry in logs] == ["reports of checkpoints wait for the store"]
    assert place.known().saves == 1


@pytest.mark.parametrize(
    "report",
    [
        pytest.param((nan,), id="no number"),
        pytest.param((inf,), id="for ever"),
        pytest.param((-1.0,), id="negative"),
        pytest.param((1.0, 1, nan), id="no time"),
        pytest.param((1.0, 1, -5.0), id="before the start"),
        pytest.param((1.0, -3), id="fewer than none"),
    ],
)
async def test_nonsense_changes_nothing_and_is_logged_once(place: Place, report: tuple) -> None:
    with capture_logs() as logs:
        place.report(*report)
        place.report(*report)
    assert [entry["event"] for entry in logs] == ["a report of checkpoints is implausible"]
    assert place.known() == place.task_manager.unfinished()[1].progress
    assert place.told == []


@pytest.mark.parametrize(
    "key",
    [
        pytest.param({"run": 2}, id="of another run"),
        pytest.param({"rank": 2}, id="of no rank"),
        pytest.param({"task": 9}, id="of no task"),
    ],
)
async def test_what_is_not_current_is_nothing(place: Place, key: dict[str, int]) -> None:
    place.report(1.0, **key)
    assert place.told == []


async def test_what_comes_too_fast_is_dropped(place: Place) -> None:
    for _ in range(1000):
        place.report(0.001)
    assert (len(place.told), place.known().saves) == (1, 1)


async def test_the_lowest_rank_that_reports_speaks_for_all(place: Place) -> None:
    place.report(1.0, rank=1)
    place.report(1.0, rank=0)
    for _ in range(3):
        place.clock.advance(1)
        place.report(1.0, rank=1)
    assert place.known().saves == 2


async def test_a_program_that_has_not_started_has_saved_nothing(place: Place) -> None:
    task = await place.task_manager.submit("ada", a_spec("two"), "")
    await place.task_manager.apply(task.id, ev.RunPlaced(("n0",), Priority.LOW, "free"))
    place.report(1.0, task=task.id)
    assert place.told == []


async def test_a_new_server_goes_on_where_it_was_written(place: Place) -> None:
    place.report(0.25)
    await place.task_manager.flush(1)
    again = Place(every=1000.0)
    again.world.store = place.store
    task_manager = TaskManager(
        place.store,
        place.clock,
        place.task_manager.feed,
        perform=lambda *_: None,
        changed=lambda *_: None,
    )
    await task_manager.load()
    anew = Checkpoints(place.clock)
    anew.task_manager = task_manager
    place.clock.advance(10)
    anew.report(RankKey(1, 1, 0), Report(0.25))
    assert anew.with_unsaved(task_manager.unfinished()[1]).progress.saves == 2
    anew.remove(1)


def test_losses_are_counted_by_group() -> None:
    seen = Interruptions()
    task = replace(a_task(nodes=2), state=TaskState.RUNNING)
    seen.load([task, replace(task, progress=Progress(held_seconds=10.0))])
    later = replace(task, progress=Progress(held_seconds=30.0, losses=1))
    seen.changed(task, later)
    seen.changed(later, replace(later, custom_rank=1.0))
    assert seen.of("default") == History(1, 2 * (10.0 + 30.0))
    assert seen.of("other") == History()
