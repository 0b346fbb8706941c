"""What blocks a waiting task, in numbers, and which rule puts other tasks before it. Valid after a pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.preemption.eligibility import immune_until, preemptible_at
from hai_backend.scheduler.queue.precedence import (
    level_name,
    protection_for_lost_work,
    run_level,
    since,
    turn_at,
)
from hai_backend.scheduler.queue.queue import Waiting
from hai_backend.scheduler.shares import Tier

_BETTER: Mapping[Ranking, str] = {
    Ranking.LEARNED: "history of tasks like it gives it better odds to end soon",
    Ranking.ATTAINED: "it has used fewer node-seconds so far",
    Ranking.SUBMITTED: "it has waited longer",
}


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """Nodes of one row of the user's quota; AUTO: in total. `after`: used with the task."""

    row: Priority
    allowed: float
    used: float
    after: float


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """Usable nodes that suit a task, by what occupies them; each is counted once."""

    free: int = 0
    leaving: int = 0
    takeable: int = 0  # of runs that may be suspended for it: too few, or of its user
    protected: int = 0  # of runs that it outranks, but that are protected
    firm: int = 0  # of other runs, or promised
    protected_until: float = inf  # when the first protection ends
    protected_runs: tuple[int, ...] = ()
    protected_why: str = ""  # of the first run, if not for its minimum or for suspensions


@dataclass(frozen=True, slots=True)
class Blockers:
    """What blocks one task. `rules` says why each task ahead comes first."""

    nodes: NodeNumbers = NodeNumbers()
    quota: tuple[QuotaUse, ...] = ()
    reserved_for: int = 0  # the first task that lacks nodes; 0: none
    rules: Mapping[int, str] = field(default_factory=dict)


def find_blockers(cycle: Cycle, task: int, ahead: Iterable[int]) -> Blockers:
    """The blockers of a task, after a pass and before its `undo`."""
    waiting, first = cycle.group.waiting.get(task), cycle.first_blocked
    if waiting is None:
        return Blockers()
    others = ((n, cycle.group.waiting.get(n)) for n in ahead)
    with cycle.before_offers():
        rules = {n: rule(other, waiting, cycle) for n, other in others if other is not None}
    return Blockers(
        nodes=node_numbers(cycle.group, waiting, cycle.now),
        quota=tuple(quota_use(cycle.group, waiting)),
        reserved_for=first.task.id if first else 0,
        rules=rules,
    )


def quota_use(group: GroupState, waiting: Waiting) -> Iterator[QuotaUse]:
    """What its user uses without and with the task. Starts of this pass are not counted."""
    user, level = waiting.account
    runs = [allocation for allocation in group.allocations.values() if allocation.task.user == user]
    for limit in group.quotas.limits(user, level):
        total = limit.row is Priority.AUTO
        used = sum(r.units for r in runs if total or run_level(r.task, group.policy) is limit.row)
        after = used + waiting.request.units
        yield QuotaUse(limit.row, limit.allowed / UNIT, used / UNIT, after / UNIT)


def node_numbers(group: GroupState, waiting: Waiting, now: float) -> NodeNumbers:
    """Counts of nodes as they will be when the decisions of the pass are carried out."""
    counts = dict.fromkeys(("free", "leaving", "takeable", "protected", "firm"), 0)
    guarded: dict[Allocation, float] = {}
    for node in group.pool.nodes_for(waiting.request):
        ends = {
            allocation: _preemptible_at(allocation, waiting, group)
            for allocation in node.allocations
        }
        counts[_blocked_by(node, max(ends.values(), default=-inf), now)] += 1
        guarded |= {allocation: end for allocation, end in ends.items() if now < end < inf}
    first = sorted(guarded, key=lambda allocation: (guarded[allocation], allocation.task.id))
    return NodeNumbers(
        **counts,
        protected_until=guarded[first[0]] if first else inf,
        protected_runs=tuple(allocation.task.id for allocation in first),
        protected_why=_why_protected(first[0], waiting, group) if first else "",
    )


def _blocked_by(node: NodeInfo, preemptible: float, now: float) -> str:
    """`preemptible`: when the last of its runs may be suspended for the task."""
    if node.occupancy is not Occupancy.ALLOCATED:
        return "leaving" if node.occupancy else "free"
    return "takeable" if preemptible <= now else "protected" if preemptible < inf else "firm"


def _preemptible_at(allocation: Allocation, waiting: Waiting, group: GroupState) -> float:
    """-inf for a run that is leaving anyway; inf for one that may not be suspended for this task."""
    if allocation.occupancy is not Occupancy.ALLOCATED:
        return -inf
    if allocation.rating is None:
        return inf
    at = preemptible_at(allocation, waiting, group.policy, group.shares)
    return max(at, immune_until(waiting, allocation, group.policy))


def _why_protected(allocation: Allocation, waiting: Waiting, group: GroupState) -> str:
    until = _preemptible_at(allocation, waiting, group)
    if until == immune_until(waiting, allocation, group.policy):
        return "it is left alone for a slice by the task, which had to leave for it"
    began, lost = allocation.task.run_started_at or 0.0, protection_for_lost_work(allocation.task)
    if lost and until == began + lost:
        return "its earlier runs have worked for nothing"
    return ""


def rule(other: Waiting, waiting: Waiting, cycle: Cycle) -> str:
    """Why the other task comes before this one."""
    if other.level != waiting.level:
        lifted = _LIFTED if other.lifted else ""
        return f"higher priority: {level_name(other.level)}{lifted}"
    if other.task.user == waiting.task.user and other.task.custom_rank < waiting.task.custom_rank:
        return "moved ahead by its owner"
    level, shares = level_name(waiting.level), cycle.group.shares
    if shares and shares.tier(other) < shares.tier(waiting):
        return f"comes first within {level}: {_SHARES[shares.tier(other)]}"
    if other.lifted and not waiting.lifted:
        return f"comes first within {level}{_LIFTED}"
    if other.merit > waiting.merit:
        return f"ranks higher within {level}: {_why_better(other, waiting, cycle)}"
    if other.merit < waiting.merit:
        return "stands in a place of its owner, who has reordered own tasks"
    return _earlier(other.task, waiting.task)


_SHARES: Mapping[Tier, str] = {
    Tier.GUARANTEED: "its user group holds less than what is guaranteed to it",
    Tier.WEIGHTED: "its user group holds less than its part",
}
_LIFTED = ", having waited longest"


def _why_better(other: Waiting, waiting: Waiting, cycle: Cycle) -> str:
    group = cycle.group
    if group.user_order.has_turn(other) and cycle.now >= turn_at(other.task, group.policy):
        return "it is its user's turn, who holds nothing here"
    smaller = other.request.units < waiting.request.units
    if smaller and other.merit * other.request.units <= waiting.merit * waiting.request.units:
        return "it asks for less"
    return _BETTER[group.policy.ranking]


def _earlier(other: SchedTask, task: SchedTask) -> str:
    if since(other) == other.created_at and since(task) == task.created_at:
        return "submitted earlier"
    return "has waited longer"
