"""Which waiting task may take the nodes of which run, and from when on."""

from __future__ import annotations

from math import inf

from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import rating_of
from hai_backend.scheduler.queue.precedence import run_level, slice_seconds
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.shares import Shares, Tier


def preemptible_at(
    allocation: Allocation, waiting: Waiting, policy: Policy, shares: Shares
) -> float:
    """From when on the task may take the nodes of a run, by levels, shares, ranks and protection; inf: never."""
    rating = rating_of(allocation)
    if rating.level < waiting.level:
        return -inf if waiting.level >= policy.urgent else rating.guard_ends[0]
    if rating.level > waiting.level:
        return inf
    ranks_below = policy.time_slices and rating.merit < waiting.merit
    if shares.different_groups(waiting, allocation):
        has, requested = shares.tier_of(allocation), shares.tier(waiting)
        equal = requested is has is not Tier.GUARANTEED
        ranks_below = requested < has or (equal and ranks_below)
    return rating.guard_ends[1] if ranks_below else inf


def refusal_scope(waiting: Waiting, allocation: Allocation, policy: Policy, now: float) -> Verdict:
    """Which tasks may not take a run that they outrank: LANE, tasks of its user; NEXT, this task; LINE, none."""
    if _same_user_and_level(allocation, waiting, policy):
        return Verdict.LANE
    return Verdict.NEXT if now < immune_until(waiting, allocation, policy) else Verdict.LINE


def _same_user_and_level(allocation: Allocation, waiting: Waiting, policy: Policy) -> bool:
    """A user's tasks of one level, as requested or as run, do not suspend one another."""
    task, newcomer = allocation.task, waiting.task
    return task.user == newcomer.user and (
        task.priority == newcomer.priority or run_level(task, policy) == waiting.quota_level
    )


def immune_until(waiting: Waiting, allocation: Allocation, policy: Policy) -> float:
    """Two tasks must not alternate: a task that was suspended for the run may not take its nodes for a slice. -inf: it
    was not.
    """
    turns = [s.at for s in waiting.task.suspensions if s.for_task == allocation.task.id]
    return turns[-1] + slice_seconds(allocation.task, policy) if turns else -inf
