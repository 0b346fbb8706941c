"""How the time of a run on its nodes was used: start, work, end, and work that no checkpoint has saved.

All of the time is divided: start (placed -> last program started), work, end (asked to leave, or last program exited ->
every rank gone). A run that never started all its programs counts as start only.
"""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.progress import Progress, update_mean
from hai_backend.domain.task import Outcome, Run, StopCode, Task

_BY_SIGNAL = 128  # exit codes from here on: killed by a signal


def programs_started_at(run: Run) -> float | None:
    """When the last of its programs was started; None while some are not."""
    times = [r.started_at for r in run.ranks if r.started_at is not None]
    return max(times) if times and len(times) == len(run.ranks) else None


def work_seconds(run: Run, now: float) -> float:
    """Seconds of work so far."""
    since = programs_started_at(run)
    return 0.0 if since is None else max(0.0, _work_ended_at(run, now) - since)


def _work_ended_at(run: Run, now: float) -> float:
    """When work ended: the run was asked to leave, or its last program exited."""
    if run.asked_at is not None:
        return run.asked_at
    if any(r.ended_at is None for r in run.ranks):
        return now
    return max(r.ended_at for r in run.ranks if r.ended_at is not None)


def record_start(task: Task, run: Run, now: float) -> Task:
    """Account for a started program: the last one of a run gives the cost of a start."""
    if programs_started_at(run) is None:
        return task
    seconds = update_mean(task.progress.start_seconds, max(0.0, now - run.created_at))
    return replace(task, progress=replace(task.progress, start_seconds=seconds))


def record_end(task: Task, run: Run, now: float) -> Task:
    """Account for an ended run; `task` is the task after it."""
    progress, work = task.progress, work_seconds(run, now)
    saved = _yielded(task, run) or task.outcome is Outcome.SUCCEEDED
    seconds = max(0.0, now - run.created_at)
    progress = replace(
        progress,
        held_seconds=progress.held_seconds + seconds,
        overhead_seconds=progress.overhead_seconds + max(0.0, seconds - work),
        lost_seconds=progress.lost_seconds + (0.0 if saved else _unsaved(progress, run, now)),
        losses=progress.losses + _counts_as_loss(task, run, saved),
        queued_at=now,
    )
    return replace(task, progress=_with_suspend_cost(progress, task, run, now))


def _unsaved(progress: Progress, run: Run, now: float) -> float:
    """Seconds of work since the last checkpoint of this run."""
    since = programs_started_at(run)
    if since is None:
        return 0.0
    return max(0.0, _work_ended_at(run, now) - max(since, progress.saved_at or since))


def _counts_as_loss(task: Task, run: Run, saved: bool) -> bool:
    """A task that was ended on purpose was not interrupted."""
    return not saved and task.wanted_outcome is None and programs_started_at(run) is not None


def _yielded(task: Task, run: Run) -> bool:
    """It reported that it has saved; or it handles the signal that its options ask for, which did not kill it."""
    if run.yielded or run.asked_at is None or not task.spec.options.suspend_signal:
        return run.yielded
    return all(r.exit_code is not None and r.exit_code < _BY_SIGNAL for r in run.ranks)


def _with_suspend_cost(progress: Progress, task: Task, run: Run, now: float) -> Progress:
    """Account for the suspension: its cost, and whether the program saved when it was asked to."""
    if run.asked_at is None:
        return progress
    seconds = update_mean(progress.suspend_seconds, max(0.0, now - run.asked_at))
    if task.outcome is Outcome.SUCCEEDED or run.stop_code & StopCode.NODE_FAILURE:
        return replace(progress, suspend_seconds=seconds)
    noticed = run.acknowledged or bool(task.spec.options.suspend_signal)
    return replace(progress, suspend_seconds=seconds, yields=noticed and _yielded(task, run))
