"""Goodput and the advised interval, compared with values computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress, update_mean
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.lifecycle.goodput import DEFAULT_BETWEEN, History, advised_interval, goodput
from tests.support.builders import a_task

NOW = 100_000.0
DAY = DEFAULT_BETWEEN


def task(nodes: int = 1, **progress: float | bool) -> Task:
    return replace(a_task(nodes=nodes), progress=Progress(**progress))  # type: ignore[arg-type]


def running(since: float, first_step: float | None, **progress: float) -> Task:
    rank = Rank(0, "n0", started_at=first_step)
    run = Run(2, RunState.RUNNING, (rank,), since, Priority.LOW, started_at=since)
    return replace(task(**progress), state=TaskState.RUNNING, run=run)


@pytest.mark.parametrize(
    ("cost", "between", "seconds"),
    [
        pytest.param(2.0, 3600.0, 120.0, id="Young: sqrt(2 * 2 * 3600)"),
        pytest.param(0.5, 10_000.0, 100.0, id="Young: sqrt(2 * 0.5 * 10000)"),
        pytest.param(
            36.0, 3600.0, 509.116882, id="a hundredth is still small: sqrt(2 * 36 * 3600)"
        ),
        # sqrt(2 * 50 * 2500) = 500; C / 2M = 0.01: 500 * (1 + 0.1 / 3 + 0.01 / 9) - 50
        pytest.param(50.0, 2500.0, 467.222222, id="Daly: C is 2 % of M"),
        # sqrt(2 * 800 * 1600) = 1600; C / 2M = 0.25: 1600 * (1 + 0.5 / 3 + 0.25 / 9) - 800
        pytest.param(800.0, 1600.0, 1111.111111, id="Daly: C is half of M"),
        pytest.param(200.0, 100.0, 100.0, id="as dear as two interruptions: M itself"),
        pytest.param(900.0, 100.0, 100.0, id="dearer still: M itself"),
    ],
)
def test_the_advised_interval(cost: float, between: float, seconds: float) -> None:
    assert advised_interval(cost, between) == pytest.approx(seconds, abs=1e-5)


@given(st.floats(1e-3, 1e6), st.floats(1.0, 1e8))
def test_advice_is_positive_and_never_more_than_youngs_nor_far_beyond_an_interruption(
    cost: float, between: float
) -> None:
    assert 0 < advised_interval(cost, between) <= (2 * cost * between) ** 0.5 * (1 + 1e-9)
    assert advised_interval(cost, between) <= 1.2 * between


@pytest.mark.parametrize(
    ("given_task", "share", "held", "overhead"),
    [
        pytest.param(task(), None, 0.0, 0.0, id="never ran"),
        pytest.param(task(held_seconds=1000, overhead_seconds=100, lost_seconds=200),
                     0.7, 1000.0, 100.0, id="(1000 - 100 - 200) / 1000"),
        pytest.param(running(NOW - 100, NOW - 90), 0.9, 100.0, 10.0, id="a first run counts as it goes"),
        pytest.param(running(NOW - 100, None), 0.0, 100.0, 100.0, id="it is still starting"),
        pytest.param(running(NOW - 100, NOW - 90, held_seconds=300, overhead_seconds=50, lost_seconds=60),
                     (300 - 50 - 60 + 90) / 400, 400.0, 60.0, id="earlier runs and this one"),
        pytest.param(running(NOW + 5, None), None, 0.0, 0.0, id="the clock was set back"),
        pytest.param(task(held_seconds=100, lost_seconds=500), 0.0, 100.0, 0.0, id="never below 0"),
        pytest.param(task(held_seconds=100, overhead_seconds=10, saving_seconds=20, loading_seconds=30),
                     0.4, 100.0, 60.0, id="saving and loading are no work"),
        pytest.param(task(held_seconds=100, saving_seconds=70, loading_seconds=70), 0.0, 100.0, 100.0,
                     id="they do not last longer than the work"),
    ],
)  # fmt: skip
def test_goodput_is_the_share_of_time_whose_work_is_saved(
    given_task: Task, share: float | None, held: float, overhead: float
) -> None:
    found = goodput(given_task, History(), NOW)
    assert found.share == (None if share is None else pytest.approx(share))
    assert (found.held_seconds, found.overhead_seconds) == (held, overhead)


def test_work_ends_when_a_run_is_asked_to_leave() -> None:
    leaving = running(NOW - 100, NOW - 90)
    assert leaving.run is not None
    leaving = replace(leaving, run=replace(leaving.run, asked_at=NOW - 30))
    assert goodput(leaving, History(), NOW).overhead_seconds == 40


@pytest.mark.parametrize(
    ("given_task", "history", "between", "basis"),
    [
        pytest.param(task(), History(), DAY, "default", id="nothing is known"),
        pytest.param(task(), History(2, 1e6), DAY, "default", id="two losses are no history"),
        pytest.param(task(), History(4, 8000.0), 2000.0, "group", id="8000 node-seconds, 4 losses"),
        pytest.param(task(nodes=4), History(4, 8000.0), 500.0, "group", id="four nodes are hit four times as often"),
        pytest.param(task(losses=2, held_seconds=1000, overhead_seconds=100), History(4, 8000.0),
                     450.0, "task", id="its own: 900 s of work, 2 losses"),
        pytest.param(task(losses=2, held_seconds=9, overhead_seconds=9), History(), DAY, "default", id="no work"),
    ],
)  # fmt: skip
def test_between_interruptions(
    given_task: Task, history: History, between: float, basis: str
) -> None:
    found = goodput(given_task, history, NOW)
    assert (found.between_seconds, found.basis) == (between, basis)


# Half a day of work; the advised interval for a checkpoint of 1 s is then sqrt(2 * 86400) = 416 s.
WORK = 43_200.0


@pytest.mark.parametrize(
    ("progress", "says"),
    [
        pytest.param({}, "", id="it never ran"),
        pytest.param({"held_seconds": 9.0, "overhead_seconds": 9.0}, "", id="it never worked"),
        pytest.param({"held_seconds": 599.0}, "", id="none yet, and too early to ask"),
        pytest.param({"held_seconds": 600.0}, "no checkpoint reported yet: save with", id="none yet"),
        pytest.param({"held_seconds": WORK, "saves": 9}, "what its checkpoints cost is unknown", id="no cost"),
        pytest.param({"held_seconds": WORK, "saves": 104, "save_seconds": 1.0}, "", id="as advised_interval"),
        pytest.param({"held_seconds": WORK, "saves": 36, "save_seconds": 1.0}, "", id="each 1200 s will do"),
        pytest.param({"held_seconds": WORK, "saves": 34, "save_seconds": 1.0},
                     "it saves too rarely: each 21.2 min of work; 6.93 min would lose less", id="each 1271 s"),
        pytest.param({"held_seconds": WORK, "saves": 1, "save_seconds": 1.0}, "it saves too rarely: each 12 h",
                     id="once"),
        pytest.param({"held_seconds": WORK, "saves": 300, "save_seconds": 1.0}, "", id="each 144 s will do"),
        pytest.param({"held_seconds": WORK, "saves": 432, "save_seconds": 1.0},
                     "it saves too often: each 100 s of work; 6.93 min is enough", id="each 100 s"),
        pytest.param({"held_seconds": 599.0, "saves": 300, "save_seconds": 1.0}, "", id="often, but of a short task"),
        pytest.param({"held_seconds": 700.0, "saves": 2, "save_seconds": 90.0}, "", id="two are too few to judge"),
    ],
)  # fmt: skip
def test_saving_too_rarely_or_too_often_is_noted(progress: dict[str, float], says: str) -> None:
    note = goodput(task(**progress), History(), NOW).note
    assert note.startswith(says)
    assert bool(note) == bool(says)


def test_only_training_tasks_are_advised_to_save() -> None:
    notebook = task(held_seconds=WORK)
    notebook = replace(notebook, spec=replace(notebook.spec, task_type=TaskType.JUPYTER))
    assert goodput(notebook, History(), NOW).note == ""


def test_a_new_measurement_has_a_weight_of_one_quarter() -> None:
    assert update_mean(None, 8.0) == 8.0
    assert update_mean(4.0, 8.0) == 5.0
    assert update_mean(4.0, 8.0, count=2) == update_mean(update_mean(4.0, 8.0), 8.0) == 5.75
    assert update_mean(4.0, 8.0, count=10**6) == 8.0
