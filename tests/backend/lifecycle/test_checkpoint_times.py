"""The time in which a run loads its checkpoint is known, bounded, and no work."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from hai_backend.domain.progress import Progress
from hai_backend.domain.task import Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from hai_backend.lifecycle.accounting import record_end, unsaved_seconds
from tests.backend.lifecycle.test_state_machine import NOW, running


def loaded(*seconds: float) -> Task:
    """Return a task whose program reports loads, one of each rank, a minute after its start."""
    task = running()
    for number, each in enumerate(seconds):
        task = step(task, ev.CheckpointLoaded(1, number % 2, each), NOW + 60).task
    return task


@pytest.mark.parametrize(
    ("reports", "stored"),
    [
        pytest.param([2.5], 2.5, id="one"),
        pytest.param([2.0, 3.0, 1.0], 3.0, id="the longest"),
        pytest.param([1e9], 60.0, id="not longer than the program runs"),
        pytest.param([inf], 60.0, id="without an end"),
        pytest.param([nan], None, id="no number"),
        pytest.param([0.0], None, id="no time"),
    ],
)
def test_the_longest_load_of_a_run_is_stored(reports: list[float], stored: float | None) -> None:
    task = loaded(*reports)
    assert task.run is not None
    assert task.run.load_seconds == stored
    assert task.progress.loading_seconds == (stored or 0.0)


def test_a_load_makes_no_line_of_the_timeline_and_a_repeated_report_changes_nothing() -> None:
    first = step(running(), ev.CheckpointLoaded(1, 0, 2.0), NOW + 60)
    assert first.events == ()
    assert step(first.task, ev.CheckpointLoaded(1, 0, 2.0), NOW + 60).task is first.task


def test_loading_is_no_lost_work_and_part_of_the_cost_of_a_restart() -> None:
    task = loaded(5.0)
    assert task.run is not None
    assert unsaved_seconds(task.progress, task.run, NOW + 60) == 55
    measured = replace(
        task, progress=replace(task.progress, start_seconds=1.0, suspend_seconds=2.0)
    )
    assert record_end(measured, task.run, NOW + 60).progress.restart_seconds == 8.0
    assert Progress(start_seconds=1.0, suspend_seconds=2.0).restart_seconds == 3.0
