"""What the time of a run was worth: its start, its end, and the work that no checkpoint kept.

The time on nodes is divided without rest: starting (placed -> last program started), work, leaving (asked to leave, or
last program gone -> every rank gone). A run that never started all its programs is starting from beginning to end.
"""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.goodput_facts import Progress, smoothed
from hai_backend.domain.task import Outcome, Run, StopCode, Task

_BY_SIGNAL = 128  # exit codes from here on: killed, and not left


def begun(run: Run) -> float | None:
    """When the last of its programs was started; None while some are not."""
    times = [r.started_at for r in run.ranks if r.started_at is not None]
    return max(times) if times and len(times) == len(run.ranks) else None


def worked(run: Run, now: float) -> float:
    """Seconds of work so far."""
    since = begun(run)
    return 0.0 if since is None else max(0.0, _left(run, now) - since)


def _left(run: Run, now: float) -> float:
    """When work ended: it was asked to leave, or its programs were gone."""
    if run.asked_at is not None:
        return run.asked_at
    if any(r.ended_at is None for r in run.ranks):
        return now
    return max(r.ended_at for r in run.ranks if r.ended_at is not None)


def started(task: Task, run: Run, now: float) -> Task:
    """A program has been started; the last one of a run tells what starting costs."""
    if begun(run) is None:
        return task
    seconds = smoothed(task.progress.start_seconds, max(0.0, now - run.created_at))
    return replace(task, progress=replace(task.progress, start_seconds=seconds))


def ended(task: Task, run: Run, now: float) -> Task:
    """The run has ended, and the task is what follows from that."""
    progress, work = task.progress, worked(run, now)
    kept = _yielded(task, run) or task.outcome is Outcome.SUCCEEDED
    held = max(0.0, now - run.created_at)
    progress = replace(
        progress,
        held_seconds=progress.held_seconds + held,
        overhead_seconds=progress.overhead_seconds + max(0.0, held - work),
        lost_seconds=progress.lost_seconds + (0.0 if kept else _unsaved(progress, run, now)),
        losses=progress.losses + _is_loss(task, run, kept),
        queued_at=now,
    )
    return replace(task, progress=_answered(progress, task, run, now))


def _unsaved(progress: Progress, run: Run, now: float) -> float:
    """Seconds of work since the last checkpoint of this run."""
    since = begun(run)
    if since is None:
        return 0.0
    return max(0.0, _left(run, now) - max(since, progress.saved_at or since))


def _is_loss(task: Task, run: Run, kept: bool) -> bool:
    """Whoever ends a task on purpose does not interrupt it."""
    return not kept and task.wanted_outcome is None and begun(run) is not None


def _yielded(task: Task, run: Run) -> bool:
    """It said that it has saved; or it knows the signal that it asked for, since that did not kill it."""
    if run.yielded or run.asked_at is None or not task.spec.options.suspend_signal:
        return run.yielded
    return all(r.exit_code is not None and r.exit_code < _BY_SIGNAL for r in run.ranks)


def _answered(progress: Progress, task: Task, run: Run, now: float) -> Progress:
    """What leaving cost, and whether the program saved when it was asked to; not learned from what says nothing."""
    if run.asked_at is None:
        return progress
    seconds = smoothed(progress.suspend_seconds, max(0.0, now - run.asked_at))
    if task.outcome is Outcome.SUCCEEDED or run.stop_code & StopCode.NODE_FAILURE:
        return replace(progress, suspend_seconds=seconds)
    saw = run.acknowledged or bool(task.spec.options.suspend_signal)
    return replace(progress, suspend_seconds=seconds, yields=saw and _yielded(task, run))
