"""When time alone may help a waiting task, and why: its own waits, and protection, slices and demotions of runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import isfinite

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.explain.counterfactual import Cause
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.eligibility import left_alone_until
from hai_backend.scheduler.queue.queue import Waiting
from hai_backend.scheduler.queue.rating import effective_level, since, slice_left, turn_at

Why = tuple[Cause, int]
"""The task of a run, or 0: of the waiting task itself."""


def moments(task: SchedTask, group: GroupState, now: float) -> dict[float, Why]:
    """All that are known to come, in order; of several reasons for one moment the most telling."""
    found: dict[float, Why] = {}
    for at, cause, number in chain(_own(task, group), _of_runs(group, now)):
        if isfinite(at) and at > now and (at not in found or found[at][0] is Cause.RANK):
            found[at] = (cause, number)
    return dict(sorted(found.items()))


def _own(task: SchedTask, group: GroupState) -> Iterator[tuple[float, Cause, int]]:
    policy = group.policy
    yield task.not_before, Cause.DELAY, 0
    yield turn_at(task, policy), Cause.TURN, 0
    yield since(task) + policy.patience_seconds, Cause.LIFT, 0
    if (waiting := group.waiting.get(task.id)) is not None:
        yield from _left_alone(waiting, group)


def _left_alone(waiting: Waiting, group: GroupState) -> Iterator[tuple[float, Cause, int]]:
    for number in dict.fromkeys(suspension.for_task for suspension in waiting.task.suspensions):
        if (holder := group.holders.get(number)) is not None:
            yield left_alone_until(waiting, holder, group.policy), Cause.PROTECTION, number


def _of_runs(group: GroupState, now: float) -> Iterator[tuple[float, Cause, int]]:
    policy = group.policy
    for number, holder in sorted(group.holders.items()):
        task, worth = holder.task, holder.worth
        if worth is None or task.run_started_at is None:
            continue
        yield from ((end, Cause.PROTECTION, number) for end in worth.guard_ends)
        yield task.run_started_at + slice_left(task, policy), Cause.SLICE, number
        yield effective_level(task, policy, now)[1], Cause.DEMOTION, number
        yield worth.until, Cause.RANK, number
