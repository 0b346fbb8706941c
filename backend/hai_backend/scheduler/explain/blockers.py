"""What stands in the way of a waiting task, in numbers, and which rule puts others before it. Asked after a pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.slots import Grip, Holder, Slot
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.preemption.eligibility import left_alone_until, taken_at
from hai_backend.scheduler.queue.queue import Waiting
from hai_backend.scheduler.queue.rating import (
    level_name,
    run_level,
    since,
    spared_for_lost_work,
    turn_at,
)
from hai_backend.scheduler.quota import UNIT
from hai_backend.scheduler.shares import Tier

_BETTER: Mapping[Ranking, str] = {
    Ranking.LEARNED: "history of tasks like it gives it better odds to end soon",
    Ranking.ATTAINED: "it has used fewer node-seconds so far",
    Ranking.SUBMITTED: "it has waited longer",
}


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """Nodes of one row of the user's quota; AUTO: in total. `after`: with the task."""

    row: Priority
    allowed: float
    held: float
    after: float


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """Usable nodes that suit a task, by what keeps them; each is counted once."""

    free: int = 0
    leaving: int = 0
    takeable: int = 0  # held by runs that may be suspended for it: too few, or its user's own
    protected: int = 0  # held by runs that it outranks, but that are protected
    firm: int = 0  # held by others, or promised
    protected_until: float = inf  # when the first protection ends
    protected_runs: tuple[int, ...] = ()
    protected_why: str = ""  # the first of them, where it is not for its minimum or for suspensions


@dataclass(frozen=True, slots=True)
class Blockers:
    """Of one task. `rules` says for each task ahead why it is."""

    nodes: NodeNumbers = NodeNumbers()
    quota: tuple[QuotaUse, ...] = ()
    reserved_for: int = 0  # the first task that lacks nodes; 0: none
    rules: Mapping[int, str] = field(default_factory=dict)


def obstacles(seating: Cycle, task: int, ahead: Iterable[int]) -> Blockers:
    """After a pass and before its `undo`."""
    waiting, first = seating.group.waiting.get(task), seating.first_blocked
    if waiting is None:
        return Blockers()
    others = ((n, seating.group.waiting.get(n)) for n in ahead)
    with seating.before_offers():
        rules = {n: rule(other, waiting, seating) for n, other in others if other is not None}
    return Blockers(
        nodes=node_numbers(seating.group, waiting, seating.now),
        quota=tuple(quota_use(seating.group, waiting)),
        reserved_for=first.task.id if first else 0,
        rules=rules,
    )


def quota_use(group: GroupState, waiting: Waiting) -> Iterator[QuotaUse]:
    """What its user holds without and with the task. What this pass starts for the user is not counted."""
    user, level = waiting.account
    runs = [holder for holder in group.holders.values() if holder.task.user == user]
    for limit in group.quotas.limits(user, level):
        total = limit.row is Priority.AUTO
        held = sum(h.units for h in runs if total or run_level(h.task, group.policy) is limit.row)
        after = held + waiting.need.units
        yield QuotaUse(limit.row, limit.allowed / UNIT, held / UNIT, after / UNIT)


def node_numbers(group: GroupState, waiting: Waiting, now: float) -> NodeNumbers:
    """As the nodes will be when what the pass has decided is carried out."""
    counts = dict.fromkeys(("free", "leaving", "takeable", "protected", "firm"), 0)
    guarded: dict[Holder, float] = {}
    for spot in group.pool.spots_for(waiting.need):
        ends = {holder: _taken_at(holder, waiting, group) for holder in spot.holders}
        counts[_keeps(spot, max(ends.values(), default=-inf), now)] += 1
        guarded |= {holder: end for holder, end in ends.items() if now < end < inf}
    first = sorted(guarded, key=lambda holder: (guarded[holder], holder.task.id))
    return NodeNumbers(
        **counts,
        protected_until=guarded[first[0]] if first else inf,
        protected_runs=tuple(holder.task.id for holder in first),
        protected_why=_why_protected(first[0], waiting, group) if first else "",
    )


def _keeps(spot: Slot, taken_at: float, now: float) -> str:
    """`taken_at`: when the last of its runs may be suspended for the task."""
    if spot.grip is not Grip.HELD:
        return "leaving" if spot.grip else "free"
    return "takeable" if taken_at <= now else "protected" if taken_at < inf else "firm"


def _taken_at(holder: Holder, waiting: Waiting, group: GroupState) -> float:
    """-inf for a run that is leaving as it is; inf for one that may not be suspended for this task."""
    if holder.grip is not Grip.HELD:
        return -inf
    if holder.worth is None:
        return inf
    at = taken_at(holder, waiting, group.policy, group.shares)
    return max(at, left_alone_until(waiting, holder, group.policy))


def _why_protected(holder: Holder, waiting: Waiting, group: GroupState) -> str:
    until = _taken_at(holder, waiting, group)
    if until == left_alone_until(waiting, holder, group.policy):
        return "it is left alone for a slice by the task, which had to leave for it"
    began, lost = holder.task.run_started_at or 0.0, spared_for_lost_work(holder.task)
    if lost and until == began + lost:
        return "its earlier runs have worked for nothing"
    return ""


def rule(other: Waiting, waiting: Waiting, seating: Cycle) -> str:
    """Why the other one stands before this one."""
    if other.level != waiting.level:
        lifted = _LIFTED if other.lifted else ""
        return f"higher priority: {level_name(other.level)}{lifted}"
    if other.task.user == waiting.task.user and other.task.custom_rank < waiting.task.custom_rank:
        return "moved ahead by its owner"
    level, shares = level_name(waiting.level), seating.group.shares
    if shares and shares.tier(other) < shares.tier(waiting):
        return f"comes first within {level}: {_PARTS[shares.tier(other)]}"
    if other.lifted and not waiting.lifted:
        return f"comes first within {level}{_LIFTED}"
    if other.merit > waiting.merit:
        return f"ranks higher within {level}: {_why_better(other, waiting, seating)}"
    if other.merit < waiting.merit:
        return "stands in a place of its owner, who has reordered own tasks"
    return _earlier(other.task, waiting.task)


_PARTS: Mapping[Tier, str] = {
    Tier.GUARANTEED: "its user group holds less than what is guaranteed to it",
    Tier.WEIGHTED: "its user group holds less than its part",
}
_LIFTED = ", having waited longest"


def _why_better(other: Waiting, waiting: Waiting, seating: Cycle) -> str:
    group = seating.group
    if group.wishes.has_turn(other) and seating.now >= turn_at(other.task, group.policy):
        return "it is its user's turn, who holds nothing here"
    smaller = other.need.units < waiting.need.units
    if smaller and other.merit * other.need.units <= waiting.merit * waiting.need.units:
        return "it asks for less"
    return _BETTER[group.policy.ranking]


def _earlier(other: SchedTask, task: SchedTask) -> str:
    if since(other) == other.created_at and since(task) == task.created_at:
        return "submitted earlier"
    return "has waited longer"
