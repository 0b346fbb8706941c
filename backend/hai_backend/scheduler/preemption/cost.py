"""What the suspension of a run costs."""

from __future__ import annotations

from math import frexp, isfinite

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.rating import restart_seconds


def loss(task: SchedTask, policy: Policy, now: float) -> float:
    """Node-seconds lost when the task is suspended now. Times in the future count as no work lost."""
    return work_lost(task, now) + len(task.placed) * restart_seconds(task, policy)


def work_lost(task: SchedTask, now: float) -> float:
    """Node-seconds of work since the last checkpoint, or start; 0 for a program that saves when it is asked to
    leave.
    """
    since = max((t for t in (task.saved_at, task.run_started_at) if t is not None), default=now)
    seconds = 0.0 if task.yields else now - since
    return len(task.placed) * (max(0.0, seconds) if isfinite(seconds) else 0.0)


def loss_of_equal(task: SchedTask, now: float) -> float:
    """The same for runs of the waiting task's own level: lost work counts in steps of two."""
    return 2.0 ** frexp(work_lost(task, now))[1]
