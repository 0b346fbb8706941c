"""The scheduler's state between passes. It is updated with changes, and makes passes only over groups that have
changed.

The `update_…` methods apply changes; `decide` makes the passes and returns the plan. A new cache of a whole snapshot
decides exactly as one that has followed every change.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import TypeVar

from hai_backend.domain.node import Group as Settings
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.plan import Decision, Plan, Wait
from hai_backend.domain.scheduling.snapshot import (
    Ending,
    QuotaRow,
    SchedTask,
    SchedulingState,
    ShareRow,
    Snapshot,
)
from hai_backend.scheduler.admission import Admission
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.explain.reasons import Explanations
from hai_backend.scheduler.group_links import GroupLinks
from hai_backend.scheduler.group_state import ALIKE, GroupState
from hai_backend.scheduler.policy.group_policy import in_force
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import like
from hai_backend.scheduler.quota import Quotas
from hai_backend.scheduler.shares import Shares

_MAX_ENDINGS = 20_000  # in a snapshot


class SchedulerCache:
    """Nodes, tasks and rules as they are now, and the state of each group. Not thread-safe."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tasks: dict[int, SchedTask] = {}
        self._nodes: dict[str, Node] = {}
        self._rules = Rules()
        self._groups: dict[str, GroupState] = {}
        self._histories: dict[str, History] = {}
        self._endings: deque[Ending] = deque(maxlen=_MAX_ENDINGS)
        self._cycles: dict[str, Cycle] = {}
        self._explanations: dict[str, Explanations] = {}
        self._stale: dict[str, None] = {}  # groups to be built anew
        self._links = GroupLinks()
        self._duplicates: list[SchedTask] = []  # runs whose id another task has too
        self._admission = Admission()
        self._now = -inf

    @staticmethod
    def of(snapshot: Snapshot, policy: Policy) -> SchedulerCache:
        """A cache of a whole snapshot."""
        cache = SchedulerCache(policy)
        cache.update_rules(Rules.of(snapshot))
        cache.update_nodes(snapshot.nodes)
        cache.learn(snapshot.endings)
        tasks = snapshot.tasks
        if duplicates := _repeated([task.id for task in tasks]):
            cache._add_duplicates(task for task in tasks if task.id in duplicates)
            tasks = tuple(task for task in tasks if task.id not in duplicates)
        cache.update_tasks(tasks, (), snapshot.now)
        return cache

    def update_rules(self, rules: Rules) -> None:
        """All settings as they are now. Groups whose settings differ from before are built anew."""
        if rules.inactive_users != self._rules.inactive_users:
            self._stale.update(dict.fromkeys(self._groups))
        self._stale.update(dict.fromkeys(rules.differ(self._rules)))
        self._rules = rules
        self._admission.inactive_users = rules.inactive_users

    def update_nodes(self, nodes: Iterable[Node]) -> None:
        """All nodes as they are now. Two nodes with one name are ambiguous: neither counts."""
        found = list(nodes)
        duplicates = _repeated([node.name for node in found])
        now = {node.name: node for node in found if node.name not in duplicates}
        before, self._nodes = self._nodes, now
        for name in before.keys() - now.keys():
            self._stale[before[name].group] = None
        changed = []
        for node in now.values():
            old = before.get(node.name)
            if old is node:
                continue
            if old is None or _shape(old) != _shape(node):
                self._stale.update(dict.fromkeys([node.group, *([old.group] if old else [])]))
            elif old.usable != node.usable:
                changed.append(node)
        self._enable_or_disable([node for node in changed if node.group not in self._stale])

    def _enable_or_disable(self, nodes: list[Node]) -> None:
        """Half the cluster may change at once, so the allocations of all nodes are listed only once."""
        groups = {name: self._edit(name) for name in sorted({node.group for node in nodes})}
        by_node = self._allocations() if nodes else {}
        for node in nodes:
            allocations = by_node.get(node.name, [])
            if any(allocation.task.group != node.group for allocation in allocations):
                self._stale[node.group] = None
            elif node.group in self._stale:
                continue
            elif node.usable:
                groups[node.group].enable_node(node, allocations)
            else:
                groups[node.group].disable_node(node)

    def _allocations(self) -> dict[str, list[Allocation]]:
        by_node: dict[str, list[Allocation]] = {}
        for group in self._groups.values():
            for allocation in group.allocations.values():
                for placed in allocation.task.placed:
                    by_node.setdefault(placed, []).append(allocation)
        return by_node

    def update_tasks(self, tasks: Iterable[SchedTask], ended: Iterable[int], now: float) -> None:
        """Unfinished tasks that are new or have changed, and the ids of tasks that have ended, also if they are in
        `tasks`.
        """
        self._now = now
        by_id, stale = self._tasks, self._stale
        for task in tasks:
            if task.id in by_id:
                self._drop(task.id)
            by_id[task.id] = task
            if task.group in stale:
                continue
            if task.group in self._groups:
                self._add(task)
            else:
                stale[task.group] = None
        for number in ended:
            self._drop(number)

    def learn(self, endings: Iterable[Ending]) -> None:
        """Tasks have ended by themselves after so long."""
        for ending in endings:
            history = self._histories.setdefault(ending.task.group, History())
            if ending.seconds >= 0:
                history.learn(like(ending.task), ending.seconds)
                self._endings.append(ending)

    def use_histories(self, histories: Mapping[str, History]) -> None:
        """Use the run times that another cache has learned of these groups. Must come before all updates."""
        self._histories.update(histories)

    def _drop(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is None:
            return
        self._admission.remove(number)
        linked = self._links.unlink(task)
        if not linked.isdisjoint(self._stale):
            self._stale.update(dict.fromkeys(linked))
            return
        for group in linked:
            self._edit(group).changed = True
        self._groups[task.group].remove(number)

    def _add(self, task: SchedTask) -> None:
        for group in self._links.link(task, self._nodes) - self._stale.keys():
            self._edit(group).changed = True
        self._admit(task)

    def _admit(self, task: SchedTask) -> None:
        if task.standing is SchedulingState.QUEUED and not self._admission.competes(task):
            return
        if task.standing is SchedulingState.RUNNING and self._admission.stopped(task):
            task = replace(task, standing=SchedulingState.LEAVING, leaves_free=True)
        self._edit(task.group).add(task, self._now)

    def _add_duplicates(self, tasks: Iterable[SchedTask]) -> None:
        for task in tasks:
            if task.standing is SchedulingState.QUEUED:
                self._admission.refuse(task.id, "two tasks have this id")
            else:
                self._duplicates.append(
                    replace(task, standing=SchedulingState.LEAVING, leaves_free=False)
                )

    def _edit(self, name: str) -> GroupState:
        """The group, after the last pass over it was undone."""
        self._explanations.pop(name, None)
        cycle = self._cycles.pop(name, None)
        if cycle is not None:
            cycle.undo()
        return self._groups[name]

    def _rebuild(self) -> None:
        """Build stale groups anew, all without tasks first: a run may have nodes that have moved to another group."""
        if not self._stale:
            return
        self._links.rebuild(self._tasks.values(), self._nodes)
        names = sorted(self._links.connected(self._stale))
        nodes = _by_group(self._nodes.values(), names)
        quotas = _by_group(self._rules.quotas, names)
        shares = _by_group(self._rules.shares, names)
        for name in names:
            if name in self._groups:
                self._edit(name)
            self._groups[name] = self._empty(name, nodes[name], quotas[name], shares[name])
        self._stale.clear()
        self._fill(names)
        for duplicate in self._duplicates:
            if duplicate.group in names:
                self._groups[duplicate.group].add_duplicate(duplicate)

    def _fill(self, names: list[str]) -> None:
        """Add tasks in the order of their arrival, as they are in memory: to read them group by group takes twice as
        long.
        """
        queued: dict[str, dict[object, list[SchedTask]]] = {name: {} for name in names}
        competes = self._admission.competes
        for task in self._tasks.values():
            if (batches := queued.get(task.group)) is None:
                continue
            if task.standing is not SchedulingState.QUEUED:
                self._admit(task)
            elif competes(task):
                batches.setdefault(ALIKE(task), []).append(task)
        for name, batches in queued.items():
            self._groups[name].add_all(batches.values(), self._now)

    def _empty(
        self, name: str, nodes: list[Node], quotas: list[QuotaRow], shares: list[ShareRow]
    ) -> GroupState:
        groups = self._rules.groups
        settings = groups.get(name, Settings(name))
        policy = in_force(settings, self._policy)
        return GroupState(
            name,
            policy,
            settings.packed,
            bool(nodes) or name in groups,
            {node.name: node for node in nodes},
            Quotas(quotas, policy),
            Shares(shares),
            self._histories.setdefault(name, History()),
            self._find_node,
        )

    def _find_node(self, name: str) -> NodeInfo | None:
        node = self._nodes.get(name)
        group = None if node is None else self._groups.get(node.group)
        return None if group is None else group.pool.nodes.get(name)

    def snapshot(self) -> Snapshot:
        """Everything that the cache was updated with, as of the last pass."""
        return Snapshot(
            now=self._now,
            nodes=tuple(self._nodes.values()),
            tasks=tuple(self._tasks.values()),
            groups=self._rules.groups,
            quotas=self._rules.quotas,
            inactive_users=self._rules.inactive_users,
            shares=self._rules.shares,
            endings=tuple(self._endings),
        )

    def decide(self, now: float) -> Plan:
        """Make a pass over each group that has changed or whose wake-up is due. Deterministic and total."""
        self._now = now
        self._rebuild()
        stops = self._admission.stops
        decisions: list[Decision] = [stops[number] for number in sorted(stops)]
        due = (
            n for n, group in self._groups.items() if group.changed or group.wakeups.next() <= now
        )
        for group in [self._edit(name) for name in sorted(self._links.connected(due))]:
            decisions += self._pass(group)
        return Plan(0, tuple(decisions), self._wake_at())

    def _pass(self, group: GroupState) -> list[Decision]:
        cycle = self._cycles[group.name] = Cycle(group, self._now)
        cycle.run()
        group.changed = bool(cycle.decisions)  # they may be refused: decide again
        return cycle.decisions

    def _wake_at(self) -> float | None:
        waiting = [g for g in self._groups.values() if g.waiting or g.deferred]
        return min((g.wakeups.next() for g in waiting if g.wakeups.next() < inf), default=None)

    def waits(self, group: str = "") -> Iterator[Wait]:
        """Why each task waits that the last pass left in the queue: invalid rows first, then by group in order.

        `group`: only tasks of this group.
        """
        refused = self._admission.refused
        yield from (refused[n] for n in sorted(refused) if not group or self._is_in(n, group))
        for name in sorted(self._cycles.keys() & {group} if group else self._cycles):
            yield from self._explained(name).all().values()

    def _is_in(self, number: int, group: str) -> bool:
        task = self._tasks.get(number)
        return task is not None and task.group == group

    def cycle_of(self, number: int) -> Cycle | None:
        """The last pass over the group of a task; None: the group has changed since."""
        task = self._tasks.get(number)
        return None if task is None else self._cycles.get(task.group)

    def wait(self, number: int) -> Wait | None:
        """Why one task waits, without its position; None: it does not, or no pass was made since it changed."""
        task = self._tasks.get(number)
        if (refused := self._admission.refused.get(number)) is not None:
            return refused
        if task is None or task.group not in self._cycles:
            return None
        return self._explained(task.group).one(number)

    def _explained(self, group: str) -> Explanations:
        if group not in self._explanations:
            self._explanations[group] = Explanations(self._cycles[group])
        return self._explanations[group]


_DEFAULT_POLICY = Policy()


def schedule(snapshot: Snapshot, policy: Policy = _DEFAULT_POLICY) -> Plan:
    """Decide for each task of a snapshot whether it starts, is suspended, stops or waits.

    The function is pure, deterministic and total: a task with an invalid row waits, with the fault as its reason.
    """
    cache = SchedulerCache.of(snapshot, policy)
    plan = cache.decide(snapshot.now)
    waits = tuple(cache.waits())
    return Plan(snapshot.revision, plan.decisions + waits, plan.wake_at if waits else None)


def _repeated(keys: Collection[Hashable]) -> set[Hashable]:
    if len(set(keys)) == len(keys):
        return set()
    return {key for key, number in Counter(keys).items() if number > 1}


_Row = TypeVar("_Row", Node, QuotaRow, ShareRow)


def _by_group(rows: Iterable[_Row], names: Iterable[str]) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {name: [] for name in names}
    for row in rows:
        if row.group in found:
            found[row.group].append(row)
    return found


def _shape(node: Node) -> tuple[object, ...]:
    """Facts of a node that require its group to be built anew when they change."""
    size = (node.gpus, node.cpus, node.memory_bytes)
    return (node.group, node.zone, node.topology, size)
