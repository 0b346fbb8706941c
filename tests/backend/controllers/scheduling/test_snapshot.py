"""Tasks are converted for the scheduler, together with checkpoints that are not stored yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hai_backend.controllers.scheduling.snapshot import Changes, pattern, sched_task
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress, Suspension
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from tests.support.builders import a_task


def running(number: int = 1, revision: int = 5) -> Task:
    run = Run(number, RunState.RUNNING, (Rank(0, "n0"),), 1.0, Priority.NORMAL, started_at=2.0)
    return replace(a_task(7), state=TaskState.RUNNING, run=run, revision=revision)


def saved_at(seen: Changes, task: Task) -> float | None:
    seen.update(task)
    return seen.take().tasks[0].saved_at


def test_a_checkpoint_counts_at_the_next_look() -> None:
    seen = Changes()
    assert saved_at(seen, running()) is None
    seen.saved(running(), 1, 100.0)
    assert saved_at(seen, running()) == 100.0


def test_a_checkpoint_outlasts_changes_of_its_task_but_not_its_run() -> None:
    seen = Changes()
    seen.saved(running(), 1, 100.0)  # before the first pass with the task
    assert saved_at(seen, running()) == 100.0
    assert saved_at(seen, replace(running(revision=6), custom_rank=3.0)) == 100.0
    suspended = replace(running(revision=7), state=TaskState.SUSPENDED)
    assert saved_at(seen, suspended) is None
    assert saved_at(seen, running(number=2, revision=8)) is None


def test_a_late_word_of_an_earlier_run_is_not_the_current_runs() -> None:
    seen = Changes()
    seen.saved(running(), 1, 100.0)
    assert saved_at(seen, running(number=2)) is None


def with_progress(**fields: Any) -> Task:
    return replace(running(), progress=Progress(**fields))


def test_a_stored_checkpoint_of_this_run_outlasts_the_server() -> None:
    assert saved_at(Changes(), with_progress(saved_at=50.0)) == 50.0
    assert saved_at(Changes(), with_progress(saved_at=0.5)) is None  # saved by an earlier run
    seen = Changes()
    seen.saved(running(), 1, 100.0)  # newer than the stored checkpoint
    assert saved_at(seen, with_progress(saved_at=50.0)) == 100.0


def test_what_was_measured_is_passed_on() -> None:
    progress = {"start_seconds": 2.0, "suspend_seconds": 3.0, "lost_seconds": 7.0}
    known = sched_task(
        with_progress(yields=True, longest_save=8.0, unsaved_suspensions=2, **progress)
    )
    assert (known.yields, known.restart_seconds, known.lost_seconds) == (True, 5.0, 7.0)
    assert (known.save_seconds, known.unsaved_suspensions) == (8.0, 2)
    fresh = sched_task(running())
    assert (fresh.yields, fresh.restart_seconds, fresh.save_seconds) == (False, None, 0.0)


def test_the_wait_and_the_suspensions_of_the_last_day_are_passed_on() -> None:
    before = (Suspension(50.0, 3, higher=True),)
    known = sched_task(with_progress(queued_at=60.0, suspensions=before))
    assert (known.waiting_since, known.suspensions) == (60.0, before)


def test_similar_names_have_one_pattern() -> None:
    assert pattern("lr-0.1_seed7") == pattern("lr-10.03_seed12") == "lr-#.#_seed#"


def test_each_change_is_told_once() -> None:
    seen = Changes()
    seen.update(running())
    assert [task.id for task in seen.take().tasks] == [7]
    assert seen.take().tasks == ()


def test_a_finished_task_is_gone_and_tells_how_long_it_ran() -> None:
    seen = Changes()
    seen.saved(running(), 1, 100.0)
    seen.update(replace(running(), state=TaskState.FINISHED, run_seconds=30.0))
    news = seen.take()
    assert (news.tasks, news.ended, [e.seconds for e in news.endings]) == ((), (7,), [30.0])
    assert saved_at(seen, running()) is None


def test_a_task_that_never_ran_teaches_nothing() -> None:
    seen = Changes()
    seen.update(replace(a_task(7), state=TaskState.FINISHED))
    assert seen.take().endings == ()
