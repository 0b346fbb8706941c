"""The state of one node group between passes: queued tasks, runs on nodes, and times at which these change.

Tasks are added and removed one by one, and nodes become usable or unusable. After any other change (sizes of nodes,
quota rows, the policy) SchedulerCache builds the group again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState
from hai_backend.scheduler.admission import Feasibility, find_deferral
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import UNIT, Request, Requests
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import VictimIndex
from hai_backend.scheduler.queue.history import History, HistoryRefresh, bin_of
from hai_backend.scheduler.queue.precedence import (
    compute_merit,
    compute_queued_precedence,
    compute_run_precedence,
    run_level,
)
from hai_backend.scheduler.queue.queue import Queue, QueueEntry, natural_key
from hai_backend.scheduler.queue.user_order import UserOrder
from hai_backend.scheduler.quota import Quotas
from hai_backend.scheduler.shares import Shares
from hai_backend.scheduler.wakeups import Wakeups

_EQUAL_FIELDS = (
    "user",
    "name",
    "node_count",
    "gpu",
    "cpu",
    "memory",
    "zone",
    "assigned_nodes",
    "task_type",
)
_TASK_CLASS = attrgetter(*_EQUAL_FIELDS)
BATCH_KEY = attrgetter(
    *_EQUAL_FIELDS, "priority", "run_seconds", "custom_rank", "held", "awaited", "not_before"
)
"""Equal for tasks of a group that differ only in their ids and in when they began to wait. They form a batch."""
_MAX_CLASSES = 20_000  # in the cache


@dataclass(slots=True, eq=False)
class GroupState:
    """The state of a group.

    `find_node` finds a usable node of any group, because an operator may have moved a node of a run to another group.
    """

    name: str
    policy: Policy
    packed: bool
    exists: bool
    nodes: dict[str, Node]
    quotas: Quotas
    shares: Shares
    history: History
    find_node: Callable[[str], NodeInfo | None]
    entries: dict[int, QueueEntry] = field(default_factory=dict)
    deferred: dict[int, SchedTask] = field(default_factory=dict)  # tasks that may not start yet
    allocations: dict[int, Allocation] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    victim_index: VictimIndex = field(default_factory=VictimIndex)
    changed: bool = True
    pool: Pool = field(init=False)
    feasible: Feasibility = field(init=False)
    user_order: UserOrder = field(init=False)
    requests: Requests = field(init=False)
    wakeups: Wakeups = field(default_factory=Wakeups)
    _history_refresh: HistoryRefresh = field(init=False)
    _classes: dict[object, tuple[Request, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = Pool(self.packed)
        for node in self.nodes.values():
            if node.usable:
                self.pool.add(node)
        self.feasible = Feasibility(self.name, self.exists, self.nodes, self.pool)
        self.requests = Requests(self.packed, self.nodes.values())
        self.user_order = UserOrder(
            self.queue,
            self.quotas,
            self.policy,
            self.feasible,
            self.wakeups,
            self.update_precedence,
        )
        self._history_refresh = HistoryRefresh(self.name, self.history, self.policy.relearn_seconds)

    def enable_node(self, node: Node, allocations: Iterable[Allocation]) -> None:
        """Make a node usable. `allocations` lists the allocations on it, once for each rank."""
        info = self.pool.add(node)
        for allocation in allocations:
            self._unindex_victim(allocation)
            allocation.add(info)
            self._index_victim(allocation)
        self._usable_nodes_changed()

    def disable_node(self, node: Node) -> None:
        """Make a node unusable. Runs on it continue."""
        allocations = list(dict.fromkeys(self.pool.nodes[node.name].allocations))
        for allocation in allocations:
            self._unindex_victim(allocation)
        self.pool.remove(node.name)
        for allocation in allocations:
            self._index_victim(allocation)
        self._usable_nodes_changed()

    def _usable_nodes_changed(self) -> None:
        """Update what depends on the usable nodes: feasibility, and the order of all users."""
        self.feasible.usable_changed()
        self.user_order.touch_all()
        self.changed = True

    def add(self, task: SchedTask, now: float) -> None:
        """Add a task that is not in the group."""
        self.changed = True
        if task.standing is not SchedulingState.QUEUED:
            self._add_run(task, now)
        elif find_deferral(task, now):
            self._defer(task, now)
        else:
            (entry,) = self._queue_up([task], now)
            self.queue.add(entry)
            self.wakeups.set(entry.until, task.id, now)

    def remove(self, task_id: int) -> None:
        """Remove a task if it is in the group."""
        self.changed = True
        self.deferred.pop(task_id, None)
        entry = self.entries.pop(task_id, None)
        if entry is not None:
            self.queue.discard(entry)
            self.user_order.remove(entry)
        allocation = self.allocations.pop(task_id, None)
        if allocation is not None:
            self._unindex_victim(allocation)
            allocation.clear()
            self._count(allocation, -allocation.units)
            self.user_order.touch(allocation.task.user)

    def _count(self, allocation: Allocation, units: int) -> None:
        """Add units, which may be negative, to what quotas and shares count for the user of a run."""
        user = allocation.task.user
        self.quotas.add_used(user, run_level(allocation.task, self.policy), units)
        self.shares.add_used(user, units)
        if allocation.occupancy is Occupancy.ALLOCATED:
            self.shares.add_retained(user, units)

    def _add_run(self, task: SchedTask, now: float) -> None:
        resources = self.requests.resources(task)
        releasing = task.standing is SchedulingState.LEAVING and task.leaves_free
        allocation = Allocation(
            task,
            Occupancy.RELEASING if releasing else Occupancy.ALLOCATED,
            resources=resources,
            units=self.requests.units(len(task.placed), resources),
            reserved_for=task.suspended_for,
        )
        if task.standing is SchedulingState.RUNNING:
            self._set_precedence(allocation, now)
        self.allocations[task.id] = allocation
        self._occupy(allocation)

    def add_duplicate(self, task: SchedTask) -> None:
        """Count the nodes of a run whose id another task has too. The run itself is never suspended."""
        resources = self.requests.resources(task)
        units = self.requests.units(len(task.placed), resources)
        self._occupy(Allocation(task, Occupancy.ALLOCATED, resources=resources, units=units))

    def _occupy(self, allocation: Allocation) -> None:
        """Allocate the nodes of a run, and count them."""
        for name in allocation.task.placed:
            node = self.pool.nodes.get(name) or self.find_node(name)
            if node is not None:
                allocation.add(node)
        self._index_victim(allocation)
        self._count(allocation, allocation.units)
        self.user_order.touch(allocation.task.user)

    def _set_precedence(self, allocation: Allocation, now: float) -> None:
        """Compute the precedence of a run, and set a wake-up for its next change."""
        task = allocation.task
        weight = max(1, self.requests.units(task.node_count, allocation.resources)) / UNIT
        allocation.precedence = compute_run_precedence(task, weight, self.history, self.policy, now)
        self.wakeups.set(allocation.precedence.until, task.id, now)

    def _index_victim(self, allocation: Allocation) -> None:
        if allocation.precedence is not None:
            self.victim_index.add(allocation)

    def _unindex_victim(self, allocation: Allocation) -> None:
        if allocation.precedence is not None:
            self.victim_index.remove(allocation)

    def add_all(self, batches: Iterable[list[SchedTask]], now: float) -> None:
        """Add many queued tasks to a new group, in batches with equal BATCH_KEY."""
        for batch in batches:
            if find_deferral(batch[0], now):
                for task in batch:
                    self._defer(task, now)
            else:
                found = self._queue_up(batch, now)
                self.queue.append(found)
                self.wakeups.append([(w.until, w.task.id) for w in found if w.until < inf])
        self.queue.sort()
        self.wakeups.sort()

    def _defer(self, task: SchedTask, now: float) -> None:
        """Store a task that may not start yet, and set a wake-up for its start."""
        self.deferred[task.id] = task
        self.wakeups.set(inf if task.held or task.awaited else task.not_before, task.id, now)

    def _queue_up(self, batch: list[SchedTask], now: float) -> list[QueueEntry]:
        """Return entries for the tasks of a batch. They are not in the queue yet."""
        first, policy = batch[0], self.policy
        request, merit = self._class(first)
        level, share = self.user_order.level(first), self.shares.share_of(first.user)
        found: list[QueueEntry] = []
        for task in batch:
            as_level, task_merit, until, lifted = compute_queued_precedence(
                task, level, merit, policy, now
            )
            entry = QueueEntry(task, request, level, as_level, task_merit, until, lifted, share)
            entry.key = natural_key(entry)
            self.entries[task.id] = entry
            found.append(entry)
        self.user_order.add(first, len(batch))
        return found

    def _class(self, task: SchedTask) -> tuple[Request, float]:
        """Return the request and the merit of a task, which all tasks of its class share. Both are cached."""
        key: object = _TASK_CLASS(task)
        if task.run_seconds:
            key = (key, bin_of(task.run_seconds))
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) >= _MAX_CLASSES:
                self._classes.clear()
            request = self.requests.request_of(task)
            weight = request.units / UNIT
            merit = compute_merit(task, task.run_seconds, weight, self.history, self.policy)
            found = self._classes[key] = (request, merit)
        return found

    def update_precedence(
        self, entry: QueueEntry, now: float, level: Priority | None = None
    ) -> None:
        """Update the precedence of a queued task, at another level if one is given, and move the task in the queue."""
        level = entry.quota_level if level is None else level
        _, merit = self._class(entry.task)
        turn = self.user_order.has_turn(entry)
        as_level, merit, until, lifted = compute_queued_precedence(
            entry.task, level, merit, self.policy, now, turn
        )
        if until != entry.until:
            self.wakeups.set(until, entry.task.id, now)
        entry.until, entry.lifted = until, lifted
        if (as_level, merit, level) == (entry.level, entry.merit, entry.quota_level):
            return
        self.queue.discard(entry)
        entry.quota_level, entry.level, entry.merit = level, as_level, merit
        entry.key = natural_key(entry)
        self.queue.add(entry)
        self.user_order.touch(entry.task.user)

    def tier(self, entry: QueueEntry) -> int:
        """Return the tier of a task, which decides before its merit among tasks of equal levels."""
        return self.shares.tier(entry) if self.shares else 0

    def advance(self, now: float) -> None:
        """Apply what time has changed: expired precedences, learned run times, the order of users' tasks."""
        self._relearn(now)
        for task in self.wakeups.pop_due(now):
            self._wake(task, now)
        self.user_order.update(now)

    def _wake(self, task_id: int, now: float) -> None:
        """Apply that a wake-up of a task is due."""
        allocation, entry = self.allocations.get(task_id), self.entries.get(task_id)
        if allocation is not None and allocation.precedence is not None:
            if allocation.precedence.until <= now:
                self._refresh_precedence(task_id, now)
        elif entry is not None:
            if entry.until <= now:
                self.update_precedence(entry, now)
            else:
                self.user_order.touch(entry.task.user)
        elif (task := self.deferred.get(task_id)) is not None and task.not_before <= now:
            self.remove(task_id)
            self.add(task, now)

    def _relearn(self, now: float) -> None:
        """Update the precedence of a few tasks after learned run times have changed."""
        if self._history_refresh.is_due(now):
            self._classes.clear()
            self._history_refresh.start([*self.allocations, *self.entries])
            return
        for task in self._history_refresh.next_tasks():
            self._refresh_precedence(task, now)

    def _refresh_precedence(self, task_id: int, now: float) -> None:
        """Compute the precedence of a run or a queued task again."""
        allocation, entry = self.allocations.get(task_id), self.entries.get(task_id)
        if allocation is not None and allocation.precedence is not None:
            self._unindex_victim(allocation)
            self._set_precedence(allocation, now)
            self._index_victim(allocation)
        elif entry is not None:
            self.update_precedence(entry, now)
