"""Decides which queued task may suspend which run, and from when on."""

from __future__ import annotations

from math import inf

from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import precedence_of
from hai_backend.scheduler.queue.precedence import run_level, slice_seconds
from hai_backend.scheduler.queue.queue import QueueEntry, RefusalScope
from hai_backend.scheduler.shares import Shares, Tier


def preemptible_at(
    allocation: Allocation, entry: QueueEntry, policy: Policy, shares: Shares
) -> float:
    """Return from when on the task may suspend a run by levels, shares, merit and protection; inf for never."""
    precedence = precedence_of(allocation)
    if precedence.level < entry.level:
        return precedence.protection_ends[2 if entry.level >= policy.urgent else 0]
    if precedence.level > entry.level:
        return inf
    ranks_below = policy.time_slices and precedence.merit < entry.merit
    if shares.different_groups(entry, allocation):
        has, requested = shares.tier_of(allocation), shares.tier(entry)
        equal = requested is has is not Tier.GUARANTEED
        ranks_below = requested < has or (equal and ranks_below)
    return precedence.protection_ends[1] if ranks_below else inf


def refusal_scope(
    entry: QueueEntry, allocation: Allocation, policy: Policy, now: float
) -> RefusalScope | None:
    """Return None if the task may suspend a run that it outranks, else which tasks may not."""
    if _same_user_and_level(allocation, entry, policy):
        return RefusalScope.LANE
    return RefusalScope.TASK if now < immune_until(entry, allocation, policy) else None


def _same_user_and_level(allocation: Allocation, entry: QueueEntry, policy: Policy) -> bool:
    """Return whether both belong to one user and have the same level, as requested or as started."""
    run, task = allocation.task, entry.task
    return run.user == task.user and (
        run.priority == task.priority or run_level(run, policy) == entry.quota_level
    )


def immune_until(entry: QueueEntry, allocation: Allocation, policy: Policy) -> float:
    """Return until when a task may not suspend the run for which it was suspended itself, or -inf if it was not.

    The time is one slice, so that two tasks do not suspend each other in turn.
    """
    times = [s.at for s in entry.task.suspensions if s.for_task == allocation.task.id]
    return times[-1] + slice_seconds(allocation.task, policy) if times else -inf
