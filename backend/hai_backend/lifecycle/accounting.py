"""Records how a run used the time on its nodes: start, work, end, and work that no checkpoint has saved.

The start lasts from the placement until the last program has started. Work lasts until the run is asked to leave or its
last program exits. The end lasts until every rank is gone. If not all programs of a run have started, all its time
counts as start.
"""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.progress import Progress, update_mean
from hai_backend.domain.task import Outcome, Run, StopCode, Task

_BY_SIGNAL = 128  # exit codes from here on mean that a signal killed the program


def programs_started_at(run: Run) -> float | None:
    """Return when the last program of the run was started; None until all have started."""
    times = [r.started_at for r in run.ranks if r.started_at is not None]
    return max(times) if times and len(times) == len(run.ranks) else None


def work_seconds(run: Run, now: float) -> float:
    """Return the seconds of work of the run so far."""
    since = programs_started_at(run)
    return 0.0 if since is None else max(0.0, _work_ended_at(run, now) - since)


def _work_ended_at(run: Run, now: float) -> float:
    """Return when the run was asked to leave, or when its last program exited, or `now`."""
    if run.asked_at is not None:
        return run.asked_at
    if any(r.ended_at is None for r in run.ranks):
        return now
    return max(r.ended_at for r in run.ranks if r.ended_at is not None)


def record_start(task: Task, run: Run, now: float) -> Task:
    """Record that a program has started. The last program of a run gives the cost of a start."""
    if programs_started_at(run) is None:
        return task
    seconds = update_mean(task.progress.start_seconds, max(0.0, now - run.created_at))
    return replace(task, progress=replace(task.progress, start_seconds=seconds))


def record_end(task: Task, run: Run, now: float) -> Task:
    """Record the times of an ended run. `task` is the task after the run."""
    progress, work = task.progress, work_seconds(run, now)
    saved = _yielded(task, run) or task.outcome is Outcome.SUCCEEDED
    seconds = max(0.0, now - run.created_at)
    progress = replace(
        progress,
        held_seconds=progress.held_seconds + seconds,
        overhead_seconds=progress.overhead_seconds + max(0.0, seconds - work),
        lost_seconds=progress.lost_seconds
        + (0.0 if saved else unsaved_seconds(progress, run, now)),
        losses=progress.losses + _counts_as_loss(task, run, saved),
        queued_at=now,
        unsaved_suspensions=_unsaved_suspensions(progress, run, saved),
    )
    if run.load_seconds is not None:
        mean = update_mean(progress.load_seconds, run.load_seconds)
        progress = replace(progress, load_seconds=mean)
    return replace(task, progress=_with_suspend_cost(progress, task, run, now))


def unsaved_seconds(progress: Progress, run: Run, now: float) -> float:
    """Return the seconds of work since the last checkpoint of this run, or since it had loaded an earlier one."""
    since = programs_started_at(run)
    if since is None:
        return 0.0
    since += run.load_seconds or 0.0
    return max(0.0, _work_ended_at(run, now) - max(since, progress.saved_at or since))


def _unsaved_suspensions(progress: Progress, run: Run, saved: bool) -> int:
    """Return how many runs in a row, up to this one, the scheduler has suspended before they saved anything."""
    since = programs_started_at(run)
    if saved or (since is not None and progress.saved_at is not None and progress.saved_at > since):
        return 0
    return progress.unsaved_suspensions + (since is not None and run.suspended_for != 0)


def _counts_as_loss(task: Task, run: Run, saved: bool) -> bool:
    """Return whether the run lost work by an interruption. A task that a person has ended was not interrupted."""
    return not saved and task.wanted_outcome is None and programs_started_at(run) is not None


def _yielded(task: Task, run: Run) -> bool:
    """Return whether the program has saved.

    It reported that, or its task sets `suspend_signal` and this signal did not kill it.
    """
    if run.yielded or run.asked_at is None or not task.spec.options.suspend_signal:
        return run.yielded
    return all(r.exit_code is not None and r.exit_code < _BY_SIGNAL for r in run.ranks)


def _with_suspend_cost(progress: Progress, task: Task, run: Run, now: float) -> Progress:
    """Record the cost of a suspension, and whether the program saved when it was asked to."""
    if run.asked_at is None:
        return progress
    seconds = update_mean(progress.suspend_seconds, max(0.0, now - run.asked_at))
    if task.outcome is Outcome.SUCCEEDED or run.stop_code & StopCode.NODE_FAILURE:
        return replace(progress, suspend_seconds=seconds)
    noticed = run.acknowledged_at is not None or bool(task.spec.options.suspend_signal)
    return replace(progress, suspend_seconds=seconds, yields=noticed and _yielded(task, run))
