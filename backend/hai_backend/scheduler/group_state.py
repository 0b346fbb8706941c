"""The state of one node group between passes: waiting tasks, runs on nodes, and when time alone will change them.

Tasks are added and removed one by one, and nodes become usable or unusable. After any other change (sizes, quota rows,
the policy) SchedulerCache builds the group anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState
from hai_backend.scheduler.admission import Feasibility, deferral
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import UNIT, Request, Requests
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import VictimIndex
from hai_backend.scheduler.queue.history import History, RatingRefresh, bin_of
from hai_backend.scheduler.queue.precedence import merit_at, rate_queued, rate_run, run_level
from hai_backend.scheduler.queue.queue import Queue, Waiting, natural_key
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
ALIKE = attrgetter(
    *_EQUAL_FIELDS, "priority", "run_seconds", "custom_rank", "held", "awaited", "not_before"
)
"""Equal for tasks of a group that differ only in their ids and in when they began to wait."""
_MAX_CLASSES = 20_000  # that are cached; names of tasks come and go


@dataclass(slots=True, eq=False)
class GroupState:
    """`find_node` finds a usable node of any group: a run keeps its nodes when an operator moves one to another
    group.
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
    waiting: dict[int, Waiting] = field(default_factory=dict)
    # on hold by their users, or backing off
    deferred: dict[int, SchedTask] = field(default_factory=dict)
    allocations: dict[int, Allocation] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    victim_index: VictimIndex = field(default_factory=VictimIndex)
    changed: bool = True
    pool: Pool = field(init=False)
    feasible: Feasibility = field(init=False)
    user_order: UserOrder = field(init=False)
    requests: Requests = field(init=False)
    wakeups: Wakeups = field(default_factory=Wakeups)
    _rating_refresh: RatingRefresh = field(init=False)
    _classes: dict[object, tuple[Request, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = Pool(self.packed)
        for node in self.nodes.values():
            if node.usable:
                self.pool.add(node)
        self.feasible = Feasibility(self.name, self.exists, self.nodes, self.pool)
        self.requests = Requests(self.packed, self.nodes.values())
        self.user_order = UserOrder(
            self.queue, self.quotas, self.policy, self.feasible, self.wakeups, self.rate
        )
        self._rating_refresh = RatingRefresh(self.name, self.history, self.policy.relearn_seconds)

    def enable_node(self, node: Node, allocations: Iterable[Allocation]) -> None:
        """A node may be used again; `allocations` are those on it, once for each rank."""
        info = self.pool.add(node)
        for allocation in allocations:
            self._unindex_victim(allocation)
            allocation.add(info)
            self._index_victim(allocation)
        self._usable_nodes_changed()

    def disable_node(self, node: Node) -> None:
        """A node may not be used for now; runs on it go on."""
        allocations = list(dict.fromkeys(self.pool.nodes[node.name].allocations))
        for allocation in allocations:
            self._unindex_victim(allocation)
        self.pool.remove(node.name)
        for allocation in allocations:
            self._index_victim(allocation)
        self._usable_nodes_changed()

    def _usable_nodes_changed(self) -> None:
        self.feasible.usable_changed()
        self.user_order.touch_all()
        self.changed = True

    def add(self, task: SchedTask, now: float) -> None:
        """Add a task that is new here, or has changed and was removed before."""
        self.changed = True
        if task.standing is not SchedulingState.QUEUED:
            self._add_run(task, now)
        elif deferral(task, now):
            self._defer(task, now)
        else:
            (waiting,) = self._queue_up([task], now)
            self.queue.add(waiting)
            self.wakeups.set(waiting.until, task.id, now)

    def remove(self, task: int) -> None:
        """Remove a task, if it is here."""
        self.changed = True
        self.deferred.pop(task, None)
        waiting = self.waiting.pop(task, None)
        if waiting is not None:
            self.queue.discard(waiting)
            self.user_order.remove(waiting)
        allocation = self.allocations.pop(task, None)
        if allocation is not None:
            self._unindex_victim(allocation)
            allocation.clear()
            self._count(allocation, -allocation.units)
            self.user_order.touch(allocation.task.user)

    def _count(self, allocation: Allocation, units: int) -> None:
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
            self._rate(allocation, now)
        self.allocations[task.id] = allocation
        self._occupy(allocation)

    def add_duplicate(self, task: SchedTask) -> None:
        """Count the nodes of a run whose id another task has too; nothing else is done with it."""
        resources = self.requests.resources(task)
        units = self.requests.units(len(task.placed), resources)
        self._occupy(Allocation(task, Occupancy.ALLOCATED, resources=resources, units=units))

    def _occupy(self, allocation: Allocation) -> None:
        for name in allocation.task.placed:
            node = self.pool.nodes.get(name) or self.find_node(name)
            if node is not None:
                allocation.add(node)
        self._index_victim(allocation)
        self._count(allocation, allocation.units)
        self.user_order.touch(allocation.task.user)

    def _rate(self, allocation: Allocation, now: float) -> None:
        task = allocation.task
        weight = max(1, self.requests.units(task.node_count, allocation.resources)) / UNIT
        allocation.rating = rate_run(task, weight, self.history, self.policy, now)
        self.wakeups.set(allocation.rating.until, task.id, now)

    def _index_victim(self, allocation: Allocation) -> None:
        if allocation.rating is not None:
            self.victim_index.add(allocation)

    def _unindex_victim(self, allocation: Allocation) -> None:
        if allocation.rating is not None:
            self.victim_index.remove(allocation)

    def add_all(self, batches: Iterable[list[SchedTask]], now: float) -> None:
        """Add many queued tasks to a new group, in batches of tasks that are ALIKE."""
        for alike in batches:
            if deferral(alike[0], now):
                for task in alike:
                    self._defer(task, now)
            else:
                found = self._queue_up(alike, now)
                self.queue.append(found)
                self.wakeups.append([(w.until, w.task.id) for w in found if w.until < inf])
        self.queue.arrange()
        self.wakeups.arrange()

    def _defer(self, task: SchedTask, now: float) -> None:
        self.deferred[task.id] = task
        self.wakeups.set(inf if task.held or task.awaited else task.not_before, task.id, now)

    def _queue_up(self, alike: list[SchedTask], now: float) -> list[Waiting]:
        first, policy = alike[0], self.policy
        request, merit = self._class(first)
        level, share = self.user_order.level(first), self.shares.of(first.user)
        found: list[Waiting] = []
        for task in alike:
            as_level, task_merit, until, lifted = rate_queued(task, level, merit, policy, now)
            waiting = Waiting(task, request, level, as_level, task_merit, until, lifted, share)
            waiting.key = natural_key(waiting)
            self.waiting[task.id] = waiting
            found.append(waiting)
        self.user_order.add(first, len(alike))
        return found

    def _class(self, task: SchedTask) -> tuple[Request, float]:
        """Request and merit, equal for tasks of one class at any level; as of the last refresh of ratings."""
        key: object = _TASK_CLASS(task)
        if task.run_seconds:
            key = (key, bin_of(task.run_seconds))
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) >= _MAX_CLASSES:
                self._classes.clear()
            request = self.requests.of(task)
            weight = request.units / UNIT
            merit = merit_at(task, task.run_seconds, weight, self.history, self.policy)
            found = self._classes[key] = (request, merit)
        return found

    def rate(self, waiting: Waiting, now: float, level: Priority | None = None) -> None:
        """Rate a waiting task anew, at another level if one is given, and move it in the queue."""
        level = waiting.quota_level if level is None else level
        _, merit = self._class(waiting.task)
        turn = self.user_order.has_turn(waiting)
        as_level, merit, until, lifted = rate_queued(
            waiting.task, level, merit, self.policy, now, turn
        )
        if until != waiting.until:
            self.wakeups.set(until, waiting.task.id, now)
        waiting.until, waiting.lifted = until, lifted
        if (as_level, merit, level) == (waiting.level, waiting.merit, waiting.quota_level):
            return
        self.queue.discard(waiting)
        waiting.quota_level, waiting.level, waiting.merit = level, as_level, merit
        waiting.key = natural_key(waiting)
        self.queue.add(waiting)
        self.user_order.touch(waiting.task.user)

    def tier(self, waiting: Waiting) -> int:
        """Orders tasks of equal levels before their ranks do."""
        return self.shares.tier(waiting) if self.shares else 0

    def advance(self, now: float) -> None:
        """Apply what time has changed: expired ratings, learned run times, the order of users' tasks."""
        self._relearn(now)
        for task in self.wakeups.due(now):
            self._wake(task, now)
        self.user_order.update(now)

    def _wake(self, task: int, now: float) -> None:
        allocation, waiting = self.allocations.get(task), self.waiting.get(task)
        if allocation is not None and allocation.rating is not None:
            if allocation.rating.until <= now:
                self._refresh_rating(task, now)
        elif waiting is not None:
            if waiting.until <= now:
                self.rate(waiting, now)
            else:
                self.user_order.touch(waiting.task.user)
        elif (late := self.deferred.get(task)) is not None and late.not_before <= now:
            self.remove(late.id)
            self.add(late, now)

    def _relearn(self, now: float) -> None:
        if self._rating_refresh.is_due(now):
            self._classes.clear()
            self._rating_refresh.start([*self.allocations, *self.waiting])
            return
        for task in self._rating_refresh.batch():
            self._refresh_rating(task, now)

    def _refresh_rating(self, task: int, now: float) -> None:
        allocation, waiting = self.allocations.get(task), self.waiting.get(task)
        if allocation is not None and allocation.rating is not None:
            self._unindex_victim(allocation)
            self._rate(allocation, now)
            self._index_victim(allocation)
        elif waiting is not None:
            self.rate(waiting, now)
