"""Which task may take the nodes of which run, and from when on."""

from __future__ import annotations

from math import inf

from hai_backend.scheduler.capacity.slots import Holder
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import worth_of
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.queue.rating import run_level, slice_seconds
from hai_backend.scheduler.shares import Shares, Tier


def taken_at(holder: Holder, waiting: Waiting, policy: Policy, shares: Shares) -> float:
    """From when on this task may take the nodes of a run, by levels, parts, ranks and protection; inf: never."""
    worth = worth_of(holder)
    if worth.level < waiting.level:
        return -inf if waiting.level >= policy.urgent else worth.guard_ends[0]
    if worth.level > waiting.level:
        return inf
    ranks_below = policy.time_slices and worth.merit < waiting.merit
    if shares.apart(waiting, holder):
        has, wants = shares.tier_of(holder), shares.tier(waiting)
        ranks_below = wants < has or (wants is has is not Tier.GUARANTEED and ranks_below)
    return worth.guard_ends[1] if ranks_below else inf


def spared(waiting: Waiting, holder: Holder, policy: Policy, now: float) -> Verdict:
    """Whom a run is spared from, though outranked: LANE, its user's own equals; NEXT, this task only; LINE, nobody."""
    if _own_equal(holder, waiting, policy):
        return Verdict.LANE
    return Verdict.NEXT if now < left_alone_until(waiting, holder, policy) else Verdict.LINE


def _own_equal(holder: Holder, waiting: Waiting, policy: Policy) -> bool:
    """A user's tasks of one level do not interrupt one another: as asked, or as run."""
    task, newcomer = holder.task, waiting.task
    return task.user == newcomer.user and (
        task.priority == newcomer.priority or run_level(task, policy) == waiting.own_level
    )


def left_alone_until(waiting: Waiting, holder: Holder, policy: Policy) -> float:
    """Two tasks do not bounce: who had to leave for another one leaves it alone for a slice. -inf: it had not."""
    turns = [s.at for s in waiting.task.suspensions if s.for_task == holder.task.id]
    return turns[-1] + slice_seconds(holder.task, policy) if turns else -inf
