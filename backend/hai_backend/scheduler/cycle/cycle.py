"""One scheduling pass over a node group: which queued tasks start, which get nodes promised, which runs are suspended.

1. Apply what time has changed: demotions, slices, protection, patience, learned run times, levels of AUTO.
2. Divide the usable nodes among the user groups.
3. Offer nodes to one task after the other, the highest level first, and within a level by merit. `_offer` lists what a
   task needs. A task that gets nothing waits, and later tasks may pass it.

The allocations that a pass makes for its decisions stay until `undo`, which must be called before the group changes
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
from hai_backend.scheduler.preemption.victim_index import precedence_of
from hai_backend.scheduler.queue.precedence import level_name
from hai_backend.scheduler.queue.queue import QueueEntry, RefusalScope


@dataclass(slots=True, eq=False)
class Cycle:
    """One pass and its decisions."""

    group: GroupState
    now: float
    decisions: list[Decision] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    promised: dict[int, tuple[int, ...]] = field(default_factory=dict)  # task -> runs it waits for
    first_blocked: QueueEntry | None = None  # the first task that lacks nodes
    _reservation: reservation.Reservation | None = None  # of `first_blocked`
    # lines whose tasks do not fit on the nodes that are not reserved
    _full_lines: set[tuple[Request, str]] = field(default_factory=set)
    _allocated: list[tuple[QueueEntry, Allocation]] = field(default_factory=list)
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
        group.queue.walk(self._offer, self._is_feasible, group.tier)

    def undo(self) -> None:
        """Remove the allocations of this pass, and withdraw its suspensions."""
        for entry, allocation in reversed(self._allocated):
            allocation.clear()
            self._count_use(entry, -entry.request.units)
        for allocation in self._suspended:
            allocation.undo_release()
            self.group.victim_index.add(allocation)
            self.group.shares.add_retained(allocation.task.user, allocation.units)

    def _is_feasible(self, request: Request) -> bool:
        return self.group.feasible.refusal(request) is None

    def _offer(self, entry: QueueEntry) -> RefusalScope | None:
        """Give the task nodes. Return None if it got them, else which tasks are refused together with it.

        1. The task's user needs quota for it, and its user group must stay within its limit.
        2. The task must not delay the task with the reservation: it may be offered only nodes that are not reserved.
        3. It starts on free nodes; else it is promised nodes, and runs are suspended for it if that is necessary.
        """
        limits = self.group.quotas.limits(*entry.account)
        if limits and not quota.fits(limits, entry.request.units):
            return RefusalScope.LANE
        if self.group.shares.exceeded(entry):
            return RefusalScope.LINE
        if self._may_delay_reserved(entry):
            return self._offer_unreserved(entry)
        scope = self._allocate(entry)
        if scope is not None and self.first_blocked is None:
            self.first_blocked = entry
        return scope

    def _allocate(self, entry: QueueEntry) -> RefusalScope | None:
        """Start the task or promise it nodes. Return None on success, else which tasks are refused with it."""
        allocation = Allocation(
            entry.task,
            Occupancy.ALLOCATED,
            resources=None if entry.request.whole_nodes else entry.request.resources,
        )
        if not self._start(entry, allocation):
            scope = self._preempt(entry)
            if scope is not None:
                return scope
            nodes = fit.promise(self.group.pool, entry.request, allocation)
            self.promised[entry.task.id] = _releasing_tasks(nodes)
        self._count_use(entry, entry.request.units)
        self._allocated.append((entry, allocation))
        return None

    def _start(self, entry: QueueEntry, allocation: Allocation) -> bool:
        """Start the task if enough nodes are free."""
        nodes = fit.allocate(self.group.pool, entry.request, allocation)
        if nodes is None:
            return False
        level = entry.quota_level
        reason = f"{entry.request} free in {self.group.name}, first in the queue at {level.name}"
        self.started.add(entry.task.id)
        names = tuple(node.name for node in nodes)
        self.decisions.append(Start(entry.task.id, names, level, reason))
        return True

    def _count_use(self, entry: QueueEntry, units: int) -> None:
        user, level = entry.account
        self.group.quotas.add_used(user, level, units)
        self.group.shares.add_used(user, units)
        self.group.shares.add_retained(user, units)

    # The reservation of the first task that lacks nodes.

    def _may_delay_reserved(self, entry: QueueEntry) -> bool:
        """Return whether the task could keep nodes that the first blocked task needs when its reservation begins."""
        group, first = self.group, self.first_blocked
        if first is None or not reservation.compete(entry.request, first.request):
            return False
        if reservation.can_return_nodes(entry, first, group.policy):
            return False
        if not self._might_fit(entry):
            return False
        if self._reservation is None:
            self._reservation = reservation.reserve(group, first, self.now)
        return reservation.outlasts(entry, first, self._reservation, group)

    def _offer_unreserved(self, entry: QueueEntry) -> RefusalScope | None:
        """Offer only nodes that are not reserved.

        If the task is refused, so is its lane. Other lanes of its line may have tasks that can return the nodes.
        """
        line = (entry.request, entry.share)
        scope = RefusalScope.LINE
        if line not in self._full_lines:
            refused = self._allocate_unreserved(entry)
            if refused is None:
                return None
            scope = refused
        if scope is RefusalScope.LINE:
            self._full_lines.add(line)
        self._wake_later()
        return RefusalScope.LANE

    def _allocate_unreserved(self, entry: QueueEntry) -> RefusalScope | None:
        """Call `_allocate` while the reserved nodes are occupied."""
        assert self._reservation is not None
        placeholder, bound = Allocation(entry.task, Occupancy.ALLOCATED), self._bound
        for node in self._reservation.nodes:
            placeholder.add(node)
        scope = self._allocate(entry)
        placeholder.clear()
        self._bound = bound  # a bound computed meanwhile does not count the reserved nodes
        return scope

    def _wake_later(self) -> None:
        """Set one wake-up for all tasks that wait for expected ends, because these change with time."""
        assert self.first_blocked is not None
        later = self.now + self.group.policy.minimum_seconds
        self.group.wakeups.set_once(later, self.first_blocked.task.id, self.now)

    # Preemption.

    def _preempt(self, entry: QueueEntry) -> RefusalScope | None:
        """Suspend runs unless releasing nodes suffice. Return None if nodes suffice, else which tasks are refused."""
        group, request = self.group, entry.request
        fitting_count = fit.rank_capacity(group.pool, request, Occupancy.RELEASING)
        if fitting_count >= request.count:
            return None
        scope, victims = RefusalScope.LINE, list[Allocation]()
        if self._might_free(entry, fitting_count) and not self._is_ruled_out(entry):
            victims, scope = victim_selection.select_victims(
                group, entry, fitting_count, self._victims
            )
            if group.packed and not victims:
                self._bound = CapacityBound(group, entry, self.now)
        for victim in victims or self._select_relocations(entry, fitting_count):
            self._suspend(victim, entry, moves=not victims)
        enough = fit.rank_capacity(group.pool, request, Occupancy.RELEASING) >= request.count
        return None if enough else scope

    def _might_fit(self, entry: QueueEntry) -> bool:
        """Check quickly whether the task would start, or runs might be suspended for it."""
        fitting_count = fit.rank_capacity(self.group.pool, entry.request, Occupancy.RELEASING)
        return fitting_count >= entry.request.count or self._might_free(entry, fitting_count)

    def _might_free(self, entry: QueueEntry, fitting_count: int) -> bool:
        """Check quickly whether suspensions might free enough nodes for the ranks that do not fit."""
        group, request = self.group, entry.request
        one_node_each = request.whole_nodes or request.node_names
        least = request.count - fitting_count if one_node_each else 1
        return group.victim_index.might_free(entry, group.policy, least, bool(group.shares))

    def _is_ruled_out(self, entry: QueueEntry) -> bool:
        return self._bound is not None and self._bound.refuses(entry)

    def _select_relocations(self, entry: QueueEntry, fitting_count: int) -> list[Allocation]:
        """Select runs to move. Only the first task that lacks nodes gets nodes that way, so that it passes no other."""
        group = self.group
        allowed = group.packed and group.policy.time_slices and not entry.request.node_names
        if not allowed or self.first_blocked is not None:
            return []
        return relocation.select_runs_to_move(group, entry, fitting_count, self.now)

    def _suspend(self, victim: Allocation, entry: QueueEntry, *, moves: bool) -> None:
        if moves:
            # The bound assumes that only victims leave. A run that moves need not be a victim.
            self._bound = None
        higher = precedence_of(victim).level < entry.level
        reason = self._suspend_reason(victim, entry, moves)
        self.decisions.append(Suspend(victim.task.id, entry.task.id, reason, higher))
        self.group.victim_index.remove(victim)
        self._victims.remove(victim)
        self.group.shares.add_retained(victim.task.user, -victim.units)
        victim.begin_release(reserved_for=entry.task.id)
        self._suspended.append(victim)

    def _suspend_reason(self, victim: Allocation, entry: QueueEntry, moves: bool) -> str:
        task, level = entry.task, entry.level
        need = f"task {task.id} of {task.user} at {level_name(level)} needs {entry.request}"
        victim_level = precedence_of(victim).level
        if moves:
            return f"{need}; this run has used its slice and moves to other nodes"
        if victim_level == level and self.group.shares.different_groups(entry, victim):
            return f"{need}; its user group uses less of its share than the user group of this run"
        if victim_level == level:
            return f"{need}; it ranks higher within {level_name(level)} than this run does now"
        lost = loss(victim.task, self.group.policy, self.now)
        counts = f"counts as {level_name(victim_level)} and loses least ({lost:.0f} node-seconds)"
        return f"{need}; this run {counts}"

    # Questions after the pass.

    def allocation_of(self, task: int) -> Allocation | None:
        """Return the nodes that this pass gives to a task. Must not be called after `undo`."""
        return next((made for entry, made in self._allocated if entry.task.id == task), None)

    def in_order(self) -> Iterable[QueueEntry]:
        """Return the feasible tasks in the order in which they would start if each got nodes in its turn."""
        group = self.group
        if not group.shares:
            return (e for e in group.queue.in_order() if self._is_feasible(e.request))
        order: list[QueueEntry] = []

        def give_nodes(entry: QueueEntry) -> None:
            order.append(entry)
            group.shares.add_retained(entry.task.user, entry.request.units)

        with self.shares_before_pass():
            group.queue.walk(give_nodes, self._is_feasible, group.tier)
            for entry in order:
                group.shares.add_retained(entry.task.user, -entry.request.units)
        return order

    @contextmanager
    def shares_before_pass(self) -> Iterator[None]:
        """Within the block, the shares do not count what this pass has allocated."""
        shares = self.group.shares
        for entry, _ in self._allocated:
            shares.add_retained(entry.task.user, -entry.request.units)
        yield
        for entry, _ in self._allocated:
            shares.add_retained(entry.task.user, entry.request.units)


def _releasing_tasks(nodes: Iterable[NodeInfo]) -> tuple[int, ...]:
    """Return the tasks that must leave these nodes before another task can start there."""
    allocations = (allocation for node in nodes for allocation in node.allocations)
    return tuple(sorted({a.task.id for a in allocations if a.occupancy is Occupancy.RELEASING}))
