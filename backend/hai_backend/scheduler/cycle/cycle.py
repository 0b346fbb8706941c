"""One scheduling pass over a node group: which queued tasks start, which get nodes promised, which runs are suspended.

1. Advance: apply what time has changed (demotions, slices, protection, patience, learned ranks, levels of AUTO).
2. Offer nodes to one task after the other, highest level first, then by rank. A task needs quota, then takes free
   nodes, else nodes that are being released, else nodes of runs that may be suspended for it. Otherwise it waits, and
   later tasks may pass it.
3. The allocations that the pass has made for its decisions stay until `undo`, which must come before the group changes
   again. Until then the group looks as it will when the decisions are carried out; explain/reasons.py reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hai_backend.domain.scheduling.plan import Decision, Start, Suspend
from hai_backend.scheduler import quota
from hai_backend.scheduler.capacity import fit
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.requests import UNIT, Request
from hai_backend.scheduler.cycle import reservation
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption import relocation, victim_selection
from hai_backend.scheduler.preemption.bounds import CapacityBound
from hai_backend.scheduler.preemption.candidates import VictimCandidates, loss
from hai_backend.scheduler.queue.precedence import level_name
from hai_backend.scheduler.queue.queue import Verdict, Waiting


@dataclass(slots=True, eq=False)
class Cycle:
    """One pass, and its decisions."""

    group: GroupState
    now: float
    decisions: list[Decision] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    promised: dict[int, tuple[int, ...]] = field(default_factory=dict)  # task -> runs it waits for
    first_blocked: Waiting | None = None  # the first task that lacks nodes
    _reservation: reservation.Reservation | None = None
    # lines whose tasks find no room beside the reserved nodes
    _full_lines: set[tuple[Request, str]] = field(default_factory=set)
    _allocated: list[tuple[Waiting, Allocation]] = field(default_factory=list)
    _suspended: list[Allocation] = field(default_factory=list)
    _victims: VictimCandidates = field(init=False)
    _bound: CapacityBound | None = None

    def __post_init__(self) -> None:
        self._victims = VictimCandidates(self.group.victim_index, self.group.policy, self.now)

    def run(self) -> None:
        """Make the decisions. The pass before must have been undone."""
        group = self.group
        group.advance(self.now)
        group.shares.divide(len(group.pool.nodes) * UNIT)
        group.queue.walk(self._offer, self._feasible, group.tier)

    def undo(self) -> None:
        """Remove the allocations of this pass, and take its suspensions back."""
        for waiting, allocation in reversed(self._allocated):
            allocation.clear()
            self._count(waiting, -waiting.request.units)
        for allocation in self._suspended:
            allocation.undo_release()
            self.group.victim_index.add(allocation)
            self.group.shares.add_retained(allocation.task.user, allocation.units)

    def _count(self, waiting: Waiting, units: int) -> None:
        user, level = waiting.account
        self.group.quotas.add_used(user, level, units)
        self.group.shares.add_used(user, units)
        self.group.shares.add_retained(user, units)

    def _feasible(self, request: Request) -> bool:
        return self.group.feasible.verdict(request) is None

    def allocation_of(self, task: int) -> Allocation | None:
        """The nodes that this pass gives to a task. Not after `undo`."""
        return next(
            (allocation for waiting, allocation in self._allocated if waiting.task.id == task), None
        )

    def in_order(self) -> Iterable[Waiting]:
        """The queue in the order in which tasks would start if each got nodes in its turn, without infeasible tasks."""
        group = self.group
        if not group.shares:
            return (w for w in group.queue.in_order() if self._feasible(w.request))
        order: list[Waiting] = []

        def take(waiting: Waiting) -> Verdict:
            order.append(waiting)
            group.shares.add_retained(waiting.task.user, waiting.request.units)
            return Verdict.NEXT

        with self.before_offers():
            group.queue.walk(take, self._feasible, group.tier)
            for waiting in order:
                group.shares.add_retained(waiting.task.user, -waiting.request.units)
        return order

    @contextmanager
    def before_offers(self) -> Iterator[None]:
        """Take what this pass gives out of the shares: so they were when the tasks that got it came before others."""
        shares = self.group.shares
        for waiting, _ in self._allocated:
            shares.add_retained(waiting.task.user, -waiting.request.units)
        yield
        for waiting, _ in self._allocated:
            shares.add_retained(waiting.task.user, waiting.request.units)

    def _offer(self, waiting: Waiting) -> Verdict:
        limits = self.group.quotas.limits(*waiting.account)
        if limits and not quota.fits(limits, waiting.request.units):
            return Verdict.LANE
        if self.group.shares.exceeded(waiting):
            return Verdict.LINE
        if self._may_delay_reserved(waiting):
            return self._offer_beside_reservation(waiting)
        refusal = self._allocate(waiting)
        if refusal is not None and self.first_blocked is None:
            self.first_blocked = waiting
        return refusal or Verdict.NEXT

    def _allocate(self, waiting: Waiting) -> Verdict | None:
        """Start the task, or promise it nodes: None. Otherwise which tasks are refused with it."""
        newcomer = Allocation(
            waiting.task,
            Occupancy.ALLOCATED,
            resources=None if waiting.request.whole_nodes else waiting.request.resources,
        )
        if not self._start(waiting, newcomer):
            refusal = self._preempt(waiting)
            if refusal is not None:
                return refusal
            nodes = fit.promise(self.group.pool, waiting.request, newcomer)
            self.promised[waiting.task.id] = _releasing_tasks(nodes)
        self._count(waiting, waiting.request.units)
        self._allocated.append((waiting, newcomer))
        return None

    def _may_delay_reserved(self, waiting: Waiting) -> bool:
        """The first task that lacks nodes could not take these nodes back, and this task may still run when it
        starts.
        """
        group, first = self.group, self.first_blocked
        if first is None or reservation.can_return_nodes(waiting, first, group.policy):
            return False
        if not self._might_fit(waiting):
            return False
        if self._reservation is None:
            self._reservation = reservation.reserve(group, first, self.now)
        return reservation.outlasts(waiting, first, self._reservation, group)

    def _might_fit(self, waiting: Waiting) -> bool:
        """A quick check: the task would start, or runs might be suspended for it."""
        group, request = self.group, waiting.request
        already = fit.rank_capacity(group.pool, request, Occupancy.RELEASING)
        return already >= request.count or self._might_free(waiting, already)

    def _might_free(self, waiting: Waiting, already: int) -> bool:
        group, least = self.group, self._least(waiting.request, already)
        return group.victim_index.might_free(waiting, group.policy, least, bool(group.shares))

    def _offer_beside_reservation(self, waiting: Waiting) -> Verdict:
        """Offer only nodes that are not reserved. Tasks behind it in its line may still be able to return their
        nodes.
        """
        line = (waiting.request, waiting.share)
        refusal = Verdict.LINE if line in self._full_lines else self._offer_unreserved(waiting)
        if refusal is None:
            return Verdict.NEXT
        if refusal is Verdict.LINE:
            self._full_lines.add(line)
        self._wake_later()
        return Verdict.LANE

    def _wake_later(self) -> None:
        """Expected ends change with time: one wake-up for all tasks that wait for them."""
        assert self.first_blocked is not None
        later = self.now + self.group.policy.minimum_seconds
        self.group.wakeups.set_once(later, self.first_blocked.task.id, self.now)

    def _offer_unreserved(self, waiting: Waiting) -> Verdict | None:
        assert self._reservation is not None
        reserved, bound = Allocation(waiting.task, Occupancy.ALLOCATED), self._bound
        for node in self._reservation.nodes:
            reserved.add(node)
        refusal = self._allocate(waiting)
        reserved.clear()
        self._bound = bound  # a new one would not count the reserved nodes
        return refusal

    def _start(self, waiting: Waiting, newcomer: Allocation) -> bool:
        nodes = fit.allocate(self.group.pool, waiting.request, newcomer)
        if nodes is None:
            return False
        level, where = waiting.quota_level, self.group.name
        reason = f"{waiting.request} free in {where}, first in the queue at {level.name}"
        self.started.add(waiting.task.id)
        self.decisions.append(
            Start(waiting.task.id, tuple(node.name for node in nodes), level, reason)
        )
        return True

    def _preempt(self, waiting: Waiting) -> Verdict | None:
        """Suspend runs if releasing nodes do not suffice: None. Otherwise which tasks are refused with this one."""
        group, request = self.group, waiting.request
        already = fit.rank_capacity(group.pool, request, Occupancy.RELEASING)
        if already >= request.count:
            return None
        refusal, victims = Verdict.LINE, list[Allocation]()
        if self._might_free(waiting, already) and not self._ruled_out(waiting):
            victims, refusal = victim_selection.victims(group, waiting, already, self._victims)
            if group.packed and not victims:
                self._bound = CapacityBound(group, waiting, self.now)
        for victim in victims or self._relocations(waiting, already):
            self._suspend(victim, waiting, moves=not victims)
        enough = fit.rank_capacity(group.pool, request, Occupancy.RELEASING) >= request.count
        return None if enough else refusal

    def _ruled_out(self, waiting: Waiting) -> bool:
        return self._bound is not None and self._bound.refuses(waiting)

    def _relocations(self, waiting: Waiting, already: int) -> list[Allocation]:
        """Runs are moved only for the first task that lacks nodes, so that no task passes others that way."""
        group, any_node = self.group, not waiting.request.node_names
        allowed = group.packed and group.policy.time_slices and any_node
        if not allowed or self.first_blocked is not None:
            return []
        return relocation.runs_to_move(self.group, waiting, already, self.now)

    def _suspend(self, victim: Allocation, waiting: Waiting, *, moves: bool) -> None:
        assert victim.rating is not None
        if moves:  # the bound counts on victims; a run that moves need not be one
            self._bound = None
        higher = victim.rating.level < waiting.level
        self.decisions.append(
            Suspend(victim.task.id, waiting.task.id, self._reason(victim, waiting, moves), higher)
        )
        self.group.victim_index.remove(victim)
        self._victims.remove(victim)
        self.group.shares.add_retained(victim.task.user, -victim.units)
        victim.begin_release(reserved_for=waiting.task.id)
        self._suspended.append(victim)

    @staticmethod
    def _least(request: Request, already: int) -> int:
        """The fewest nodes that must be freed for the missing ranks."""
        return request.count - already if request.whole_nodes or request.node_names else 1

    def _reason(self, victim: Allocation, waiting: Waiting, moves: bool) -> str:
        task, level = waiting.task, waiting.level
        whose = f"task {task.id} of {task.user} at {level_name(level)} needs {waiting.request}"
        rating = victim.rating
        assert rating is not None
        if moves:
            return f"{whose}; this run has had its slice and fits on other nodes: it moves there"
        if rating.level == level and self.group.shares.different_groups(waiting, victim):
            return f"{whose}; its user group has more of its part to come than that of this run"
        if rating.level == level:
            return f"{whose}; it ranks higher within {level_name(level)} than this run does now"
        lost = loss(victim.task, self.group.policy, self.now)
        counts = f"counts as {level_name(rating.level)} and loses least ({lost:.0f} node-seconds)"
        return f"{whose}; this run {counts}"


def _releasing_tasks(nodes: Iterable[NodeInfo]) -> tuple[int, ...]:
    """The tasks that must leave these nodes first."""
    allocations = (allocation for node in nodes for allocation in node.allocations)
    return tuple(sorted({a.task.id for a in allocations if a.occupancy is Occupancy.RELEASING}))
