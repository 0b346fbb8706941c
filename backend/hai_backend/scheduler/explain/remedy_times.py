"""When time alone may help a waiting task, and why: its own waits, and protection, slices and demotions of runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import isfinite

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.explain.remedy import Cause
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.eligibility import immune_until
from hai_backend.scheduler.queue.precedence import effective_level, since, slice_left, turn_at
from hai_backend.scheduler.queue.queue import Waiting

Why = tuple[Cause, int]
"""The cause, and the task of the run that it concerns; 0: the waiting task itself."""


def time_changes(task: SchedTask, group: GroupState, now: float) -> dict[float, Why]:
    """All such times after `now`, in order. Of several causes for one time, one other than RANK is preferred."""
    found: dict[float, Why] = {}
    for at, cause, number in chain(_of_task(task, group), _of_runs(group, now)):
        if isfinite(at) and at > now and (at not in found or found[at][0] is Cause.RANK):
            found[at] = (cause, number)
    return dict(sorted(found.items()))


def _of_task(task: SchedTask, group: GroupState) -> Iterator[tuple[float, Cause, int]]:
    policy = group.policy
    yield task.not_before, Cause.DELAY, 0
    yield turn_at(task, policy), Cause.TURN, 0
    yield since(task) + policy.patience_seconds, Cause.LIFT, 0
    if (waiting := group.waiting.get(task.id)) is not None:
        yield from _immunities(waiting, group)


def _immunities(waiting: Waiting, group: GroupState) -> Iterator[tuple[float, Cause, int]]:
    for number in dict.fromkeys(suspension.for_task for suspension in waiting.task.suspensions):
        if (allocation := group.allocations.get(number)) is not None:
            yield immune_until(waiting, allocation, group.policy), Cause.PROTECTION, number


def _of_runs(group: GroupState, now: float) -> Iterator[tuple[float, Cause, int]]:
    policy = group.policy
    for number, allocation in sorted(group.allocations.items()):
        task, rating = allocation.task, allocation.rating
        if rating is None or task.run_started_at is None:
            continue
        yield from ((end, Cause.PROTECTION, number) for end in rating.guard_ends)
        yield task.run_started_at + slice_left(task, policy), Cause.SLICE, number
        yield effective_level(task, policy, now)[1], Cause.DEMOTION, number
        yield rating.until, Cause.RANK, number
