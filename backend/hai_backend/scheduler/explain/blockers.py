"""What blocks a queued task after a pass, in numbers, and why other tasks come before it."""

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
    protection_without_progress,
    run_level,
    turn_at,
    wait_began_at,
)
from hai_backend.scheduler.queue.queue import QueueEntry
from hai_backend.scheduler.shares import Tier

_BETTER: Mapping[Ranking, str] = {
    Ranking.LEARNED: "tasks like it are more likely to end soon",
    Ranking.ATTAINED: "it has used fewer node-seconds so far",
    Ranking.SUBMITTED: "it has waited longer",
}


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """Use of one row of the user's quota, in nodes. `row` is AUTO for the total, `after` is the use with the task."""

    row: Priority
    allowed: float
    used: float
    after: float


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """The usable nodes that suit a task, by what occupies them. Each node is counted once."""

    free: int = 0
    leaving: int = 0
    takeable: int = (
        0  # of runs that may be suspended for the task, but have too few nodes or the same user
    )
    protected: int = 0  # of runs that the task outranks, but that are protected
    firm: int = 0  # of all other runs, or promised to other tasks
    protected_until: float = inf  # when the first protection ends
    protected_runs: tuple[int, ...] = ()
    protected_why: str = ""  # why the first run is protected, if the reason is a special one


@dataclass(frozen=True, slots=True)
class Blockers:
    """What blocks one task. `rules` says for each task ahead why it comes first."""

    nodes: NodeNumbers = NodeNumbers()
    quota: tuple[QuotaUse, ...] = ()
    reserved_for: int = 0  # the first task that lacks nodes; 0 if there is none
    rules: Mapping[int, str] = field(default_factory=dict)


def find_blockers(cycle: Cycle, task_id: int, ahead: Iterable[int]) -> Blockers:
    """Return what blocks a task. Must be called after a pass and before its `undo`."""
    entry, first = cycle.group.entries.get(task_id), cycle.first_blocked
    if entry is None:
        return Blockers()
    others = ((n, cycle.group.entries.get(n)) for n in ahead)
    with cycle.shares_before_pass():
        rules = {n: explain_order(other, entry, cycle) for n, other in others if other is not None}
    return Blockers(
        nodes=count_nodes(cycle.group, entry, cycle.now),
        quota=tuple(list_quota_use(cycle.group, entry)),
        reserved_for=first.task.id if first else 0,
        rules=rules,
    )


def list_quota_use(group: GroupState, entry: QueueEntry) -> Iterator[QuotaUse]:
    """Yield the use of each quota row that limits the task. Starts of this pass are not counted."""
    user, level = entry.account
    runs = [allocation for allocation in group.allocations.values() if allocation.task.user == user]
    for limit in group.quotas.limits(user, level):
        total = limit.row is Priority.AUTO
        used = sum(r.units for r in runs if total or run_level(r.task, group.policy) is limit.row)
        after = used + entry.request.units
        yield QuotaUse(limit.row, limit.allowed / UNIT, used / UNIT, after / UNIT)


def count_nodes(group: GroupState, entry: QueueEntry, now: float) -> NodeNumbers:
    """Count the nodes as they will be occupied after the decisions of the pass are carried out."""
    counts = dict.fromkeys(("free", "leaving", "takeable", "protected", "firm"), 0)
    protected: dict[Allocation, float] = {}
    for node in group.pool.nodes_for(entry.request):
        ends = {
            allocation: _preemptible_at(allocation, entry, group) for allocation in node.allocations
        }
        counts[_blocked_by(node, max(ends.values(), default=-inf), now)] += 1
        protected |= {allocation: end for allocation, end in ends.items() if now < end < inf}
    runs = sorted(protected, key=lambda allocation: (protected[allocation], allocation.task.id))
    return NodeNumbers(
        **counts,
        protected_until=protected[runs[0]] if runs else inf,
        protected_runs=tuple(allocation.task.id for allocation in runs),
        protected_why=_why_protected(runs[0], entry, group) if runs else "",
    )


def _blocked_by(node: NodeInfo, preemptible: float, now: float) -> str:
    """Return the name of the count for a node. All its runs may be suspended for the task from `preemptible` on."""
    if node.occupancy is not Occupancy.ALLOCATED:
        return "leaving" if node.occupancy else "free"
    return "takeable" if preemptible <= now else "protected" if preemptible < inf else "firm"


def _preemptible_at(allocation: Allocation, entry: QueueEntry, group: GroupState) -> float:
    """Return from when on a run may be suspended for the task: -inf if it leaves anyway, inf if never."""
    if allocation.occupancy is not Occupancy.ALLOCATED:
        return -inf
    if allocation.precedence is None:
        return inf
    at = preemptible_at(allocation, entry, group.policy, group.shares)
    return max(at, immune_until(entry, allocation, group.policy))


def _why_protected(allocation: Allocation, entry: QueueEntry, group: GroupState) -> str:
    until = _preemptible_at(allocation, entry, group)
    if until == immune_until(entry, allocation, group.policy):
        return "the task was suspended for this run, and may not suspend it for one slice"
    began, lost = allocation.task.run_started_at or 0.0, protection_for_lost_work(allocation.task)
    if protection_without_progress(allocation.task, group.policy):
        return "its last runs were suspended before they saved"
    if lost and until == began + lost:
        return "its earlier runs lost their work"
    return ""


def explain_order(other: QueueEntry, entry: QueueEntry, cycle: Cycle) -> str:
    """Say why the other task comes before this task."""
    if other.level != entry.level:
        lifted = _LIFTED if other.lifted else ""
        return f"higher priority: {level_name(other.level)}{lifted}"
    if other.task.user == entry.task.user and other.task.custom_rank < entry.task.custom_rank:
        return "moved ahead by its owner"
    level, shares = level_name(entry.level), cycle.group.shares
    if shares and shares.tier(other) < shares.tier(entry):
        return f"comes first within {level}: {_SHARES[shares.tier(other)]}"
    if other.lifted and not entry.lifted:
        return f"comes first within {level}{_LIFTED}"
    if other.merit > entry.merit:
        return f"ranks higher within {level}: {_why_better(other, entry, cycle)}"
    if other.merit < entry.merit:
        return "has the position of another task of its owner, who has reordered the tasks"
    return _earlier(other.task, entry.task)


_SHARES: Mapping[Tier, str] = {
    Tier.GUARANTEED: "its user group uses less than its guaranteed nodes",
    Tier.WEIGHTED: "its user group uses less than its part",
}
_LIFTED = " because it has waited too long"


def _why_better(other: QueueEntry, entry: QueueEntry, cycle: Cycle) -> str:
    group = cycle.group
    if group.user_order.has_turn(other) and cycle.now >= turn_at(other.task, group.policy):
        return "its user has no nodes in this group, so it is this user's turn"
    smaller = other.request.units < entry.request.units
    if smaller and other.merit * other.request.units <= entry.merit * entry.request.units:
        return "it requests fewer nodes"
    return _BETTER[group.policy.ranking]


def _earlier(other: SchedTask, task: SchedTask) -> str:
    if wait_began_at(other) == other.created_at and wait_began_at(task) == task.created_at:
        return "submitted earlier"
    return "has waited longer"
