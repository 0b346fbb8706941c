"""The times at which a queued task may get nodes although no event occurs, and why.

At such a time the task's own wait has lasted long enough, or the protection, slice or level of a run changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import isfinite

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.explain.remedy import Cause
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.eligibility import immune_until
from hai_backend.scheduler.queue.precedence import (
    effective_level,
    slice_left,
    turn_at,
    wait_began_at,
)
from hai_backend.scheduler.queue.queue import QueueEntry

Why = tuple[Cause, int]
"""The cause, and the task of the run that it concerns; 0 for the queued task itself."""


def list_remedy_times(task: SchedTask, group: GroupState, now: float) -> dict[float, Why]:
    """Return all such times after `now`, in order. If a time has several causes, RANK comes last."""
    found: dict[float, Why] = {}
    for at, cause, number in chain(_of_task(task, group), _of_runs(group, now)):
        if isfinite(at) and at > now and (at not in found or found[at][0] is Cause.RANK):
            found[at] = (cause, number)
    return dict(sorted(found.items()))


def _of_task(task: SchedTask, group: GroupState) -> Iterator[tuple[float, Cause, int]]:
    """Yield times that depend on the queued task alone."""
    policy = group.policy
    yield task.not_before, Cause.DELAY, 0
    yield turn_at(task, policy), Cause.TURN, 0
    yield wait_began_at(task) + policy.patience_seconds, Cause.LIFT, 0
    if (entry := group.entries.get(task.id)) is not None:
        yield from _immunities(entry, group)


def _immunities(entry: QueueEntry, group: GroupState) -> Iterator[tuple[float, Cause, int]]:
    """Yield when the task may again suspend runs for which it was suspended."""
    for number in dict.fromkeys(suspension.for_task for suspension in entry.task.suspensions):
        if (allocation := group.allocations.get(number)) is not None:
            yield immune_until(entry, allocation, group.policy), Cause.PROTECTION, number


def _of_runs(group: GroupState, now: float) -> Iterator[tuple[float, Cause, int]]:
    """Yield times at which the protection, slice, level or merit of a run changes."""
    policy = group.policy
    for number, allocation in sorted(group.allocations.items()):
        task, precedence = allocation.task, allocation.precedence
        if precedence is None or task.run_started_at is None:
            continue
        yield from ((end, Cause.PROTECTION, number) for end in precedence.protection_ends)
        yield task.run_started_at + slice_left(task, policy), Cause.SLICE, number
        yield effective_level(task, policy, now)[1], Cause.DEMOTION, number
        yield precedence.until, Cause.RANK, number
