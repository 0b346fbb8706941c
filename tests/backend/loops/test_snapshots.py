"""What the scheduler sees of a task follows the task, and keeps what the task itself does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.loops.snapshots import SchedTasks
from hai_backend.testing import a_task


def running(number: int = 1, revision: int = 5) -> Task:
    run = Run(number, RunState.RUNNING, (Rank(0, "n0"),), 1.0, Priority.NORMAL, started_at=2.0)
    return replace(a_task(7), state=TaskState.RUNNING, run=run, revision=revision)


def saved_at(seen: SchedTasks, task: Task) -> float | None:
    return seen.of([task])[0].saved_at


def test_a_checkpoint_counts_at_the_next_look() -> None:
    seen = SchedTasks()
    assert saved_at(seen, running()) is None
    seen.saved(7, 1, 100.0)
    assert saved_at(seen, running()) == 100.0


def test_a_checkpoint_outlasts_changes_of_its_task_but_not_its_run() -> None:
    seen = SchedTasks()
    seen.saved(7, 1, 100.0)  # before any pass has seen the task
    assert saved_at(seen, running()) == 100.0
    assert saved_at(seen, replace(running(revision=6), custom_rank=3.0)) == 100.0
    suspended = replace(running(revision=7), state=TaskState.SUSPENDED)
    assert saved_at(seen, suspended) is None
    assert saved_at(seen, running(number=2, revision=8)) is None


def test_a_late_word_of_an_earlier_run_is_not_the_current_runs() -> None:
    seen = SchedTasks()
    seen.saved(7, 1, 100.0)
    assert saved_at(seen, running(number=2)) is None


def with_progress(**fields: Any) -> Task:
    return replace(running(), progress=Progress(**fields))


def test_a_stored_checkpoint_of_this_run_outlasts_the_server() -> None:
    assert saved_at(SchedTasks(), with_progress(saved_at=50.0)) == 50.0
    assert saved_at(SchedTasks(), with_progress(saved_at=0.5)) is None  # of an earlier run
    seen = SchedTasks()
    seen.saved(7, 1, 100.0)  # newer than what is written
    assert saved_at(seen, with_progress(saved_at=50.0)) == 100.0


def test_what_was_measured_is_passed_on() -> None:
    known = SchedTasks().of([with_progress(yields=True, start_seconds=2.0, suspend_seconds=3.0)])[0]
    assert (known.yields, known.restart_seconds) == (True, 5.0)
    fresh = SchedTasks().of([running()])[0]
    assert (fresh.yields, fresh.restart_seconds) == (False, None)


def test_what_is_finished_is_forgotten() -> None:
    seen = SchedTasks()
    seen.saved(7, 1, 100.0)
    assert seen.of([]) == ()
    assert saved_at(seen, running()) is None


def test_an_unchanged_task_is_not_converted_again() -> None:
    seen, task = SchedTasks(), running()
    assert seen.of([task])[0] is seen.of([task])[0]
