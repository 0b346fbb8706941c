"""The scheduler's state between passes, which makes passes only over node groups that have changed.

The `update_…` methods apply changes; `decide` makes the passes and returns the plan. A cache that is built from a whole
snapshot decides exactly as a cache that has followed every change. `schedule` is one pass over a whole snapshot.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import TypeVar

from hai_backend.domain.node import Group, Node
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
from hai_backend.scheduler.group_state import BATCH_KEY, GroupState
from hai_backend.scheduler.policy.group_policy import resolve_policy
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import task_kind
from hai_backend.scheduler.quota import Quotas
from hai_backend.scheduler.shares import Shares

_MAX_ENDINGS = 20_000  # in a snapshot


class SchedulerCache:
    """The current nodes, tasks and rules, and the state of each group. Not thread-safe."""

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
        self._stale: dict[str, None] = {}  # groups that must be built again
        self._links = GroupLinks()
        self._duplicates: list[SchedTask] = []  # runs whose ids other tasks have too
        self._admission = Admission()
        self._now = -inf

    @staticmethod
    def from_snapshot(snapshot: Snapshot, policy: Policy) -> SchedulerCache:
        """Return a cache of a whole snapshot."""
        cache = SchedulerCache(policy)
        cache.update_rules(Rules.from_snapshot(snapshot))
        cache.update_nodes(snapshot.nodes)
        cache.learn(snapshot.endings)
        tasks = snapshot.tasks
        if duplicates := _repeated([task.id for task in tasks]):
            cache._add_duplicates(task for task in tasks if task.id in duplicates)
            tasks = tuple(task for task in tasks if task.id not in duplicates)
        cache.update_tasks(tasks, (), snapshot.now)
        return cache

    def update_rules(self, rules: Rules) -> None:
        """Replace all rules. Groups whose rules have changed are built again."""
        if rules.inactive_users != self._rules.inactive_users:
            self._stale.update(dict.fromkeys(self._groups))
        self._stale.update(dict.fromkeys(rules.changed_groups(self._rules)))
        self._rules = rules
        self._admission.inactive_users = rules.inactive_users

    def update_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace all nodes. Two nodes with one name are ambiguous, so neither is used."""
        nodes = list(nodes)
        duplicates = _repeated([node.name for node in nodes])
        new_nodes = {node.name: node for node in nodes if node.name not in duplicates}
        old_nodes, self._nodes = self._nodes, new_nodes
        for name in old_nodes.keys() - new_nodes.keys():
            self._stale[old_nodes[name].group] = None
        changed = []
        for node in new_nodes.values():
            old = old_nodes.get(node.name)
            if old is node:
                continue
            if old is None or _shape(old) != _shape(node):
                self._stale.update(dict.fromkeys([node.group, *([old.group] if old else [])]))
            elif old.usable != node.usable:
                changed.append(node)
        self._enable_or_disable([node for node in changed if node.group not in self._stale])

    def _enable_or_disable(self, nodes: list[Node]) -> None:
        """Make nodes usable or unusable.

        Half the cluster may change at once, so the allocations of all nodes are listed only once.
        """
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
        """Return the allocations of all groups by node name, once for each rank."""
        by_node: dict[str, list[Allocation]] = {}
        for group in self._groups.values():
            for allocation in group.allocations.values():
                for placed in allocation.task.placed:
                    by_node.setdefault(placed, []).append(allocation)
        return by_node

    def update_tasks(self, tasks: Iterable[SchedTask], ended: Iterable[int], now: float) -> None:
        """Add or replace unfinished tasks, and remove the `ended` tasks, even if they are in `tasks` too."""
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
        for task_id in ended:
            self._drop(task_id)

    def learn(self, endings: Iterable[Ending]) -> None:
        """Add the run times of tasks that have ended by themselves to the histories of their groups."""
        for ending in endings:
            history = self._histories.setdefault(ending.task.group, History())
            if ending.seconds >= 0:
                history.learn(task_kind(ending.task), ending.seconds)
                self._endings.append(ending)

    def use_histories(self, histories: Mapping[str, History]) -> None:
        """Use the histories of another cache for these groups. Must be called before all updates."""
        self._histories.update(histories)

    def _drop(self, task_id: int) -> None:
        """Remove a task, and mark the groups that it connects as changed."""
        task = self._tasks.pop(task_id, None)
        if task is None:
            return
        self._admission.remove(task_id)
        linked = self._links.unlink(task)
        if not linked.isdisjoint(self._stale):
            self._stale.update(dict.fromkeys(linked))
            return
        for group in linked:
            self._edit(group).changed = True
        self._groups[task.group].remove(task_id)

    def _add(self, task: SchedTask) -> None:
        """Add a task to its group, and mark the groups that it connects as changed."""
        for group in self._links.link(task, self._nodes) - self._stale.keys():
            self._edit(group).changed = True
        self._admit(task)

    def _admit(self, task: SchedTask) -> None:
        """Add a task to its group unless it is refused. A run that must stop counts as leaving."""
        if task.standing is SchedulingState.QUEUED and not self._admission.admit(task):
            return
        if task.standing is SchedulingState.RUNNING and self._admission.must_stop(task):
            task = replace(task, standing=SchedulingState.LEAVING, leaves_free=True)
        self._edit(task.group).add(task, self._now)

    def _add_duplicates(self, tasks: Iterable[SchedTask]) -> None:
        """Refuse queued tasks whose ids other tasks have too. Runs with such ids only occupy their nodes."""
        for task in tasks:
            if task.standing is SchedulingState.QUEUED:
                self._admission.refuse(task.id, "Two tasks have this id.")
            else:
                self._duplicates.append(
                    replace(task, standing=SchedulingState.LEAVING, leaves_free=False)
                )

    def _edit(self, name: str) -> GroupState:
        """Undo the last pass over the group, and return the group."""
        self._explanations.pop(name, None)
        cycle = self._cycles.pop(name, None)
        if cycle is not None:
            cycle.undo()
        return self._groups[name]

    def _rebuild(self) -> None:
        """Build stale groups again.

        All of them are built without tasks first, because a run may have nodes that have moved to another group.
        """
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
        """Add tasks to new groups.

        The tasks are read in the order of their arrival, which is their order in memory. To read them group by group
        would take twice as long.
        """
        queued: dict[str, dict[object, list[SchedTask]]] = {name: {} for name in names}
        admit = self._admission.admit
        for task in self._tasks.values():
            if (batches := queued.get(task.group)) is None:
                continue
            if task.standing is not SchedulingState.QUEUED:
                self._admit(task)
            elif admit(task):
                batches.setdefault(BATCH_KEY(task), []).append(task)
        for name, batches in queued.items():
            self._groups[name].add_all(batches.values(), self._now)

    def _empty(
        self, name: str, nodes: list[Node], quotas: list[QuotaRow], shares: list[ShareRow]
    ) -> GroupState:
        """Return a group without tasks."""
        groups = self._rules.groups
        settings = groups.get(name, Group(name))
        policy = resolve_policy(settings, self._policy)
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
        """Return everything that the cache was updated with, as of the last pass."""
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
        """Make a pass over each group that has changed or whose wake-up is due. Deterministic; raises no error."""
        self._now = now
        self._rebuild()
        stops = self._admission.stops
        decisions: list[Decision] = [stops[task_id] for task_id in sorted(stops)]
        due = (
            name
            for name, group in self._groups.items()
            if group.changed or group.wakeups.next_at() <= now
        )
        for group in [self._edit(name) for name in sorted(self._links.connected(due))]:
            decisions += self._pass(group)
        return Plan(0, tuple(decisions), self._wake_at())

    def _pass(self, group: GroupState) -> list[Decision]:
        """Make a pass over one group."""
        cycle = self._cycles[group.name] = Cycle(group, self._now)
        cycle.run()
        group.changed = bool(cycle.decisions)  # decisions may be rejected, so decide again
        return cycle.decisions

    def _wake_at(self) -> float | None:
        """Return the time of the first wake-up of a group with queued or deferred tasks, or None."""
        groups = [g for g in self._groups.values() if g.entries or g.deferred]
        return min((g.wakeups.next_at() for g in groups if g.wakeups.next_at() < inf), default=None)

    def waits(self, group: str = "") -> Iterator[Wait]:
        """Yield why each task waits that the last pass left in the queue: invalid rows first, then group by group.

        With `group`, yield only tasks of this group.
        """
        refused = self._admission.refused
        yield from (refused[i] for i in sorted(refused) if not group or self._is_in(i, group))
        for name in sorted(self._cycles.keys() & {group} if group else self._cycles):
            yield from self._explanations_of(name).explain_all().values()

    def _is_in(self, task_id: int, group: str) -> bool:
        task = self._tasks.get(task_id)
        return task is not None and task.group == group

    def cycle_of(self, task_id: int) -> Cycle | None:
        """Return the last pass over the group of a task, or None if the group has changed since."""
        task = self._tasks.get(task_id)
        return None if task is None else self._cycles.get(task.group)

    def wait(self, task_id: int) -> Wait | None:
        """Return why a task waits, without its position.

        None if the task does not wait, or was changed after the last pass.
        """
        task = self._tasks.get(task_id)
        if (refused := self._admission.refused.get(task_id)) is not None:
            return refused
        if task is None or task.group not in self._cycles:
            return None
        return self._explanations_of(task.group).explain(task_id)

    def _explanations_of(self, group: str) -> Explanations:
        if group not in self._explanations:
            self._explanations[group] = Explanations(self._cycles[group])
        return self._explanations[group]


_DEFAULT_POLICY = Policy()


def schedule(snapshot: Snapshot, policy: Policy = _DEFAULT_POLICY) -> Plan:
    """Decide for each task of a snapshot whether it starts, is suspended, stops or waits.

    The function is pure, deterministic and total: a task with an invalid row waits, with the fault as its reason.
    """
    cache = SchedulerCache.from_snapshot(snapshot, policy)
    plan = cache.decide(snapshot.now)
    waits = tuple(cache.waits())
    return Plan(snapshot.revision, plan.decisions + waits, plan.wake_at if waits else None)


def _repeated(keys: Collection[Hashable]) -> set[Hashable]:
    if len(set(keys)) == len(keys):
        return set()
    return {key for key, number in Counter(keys).items() if number > 1}


_Row = TypeVar("_Row", Node, QuotaRow, ShareRow)


def _by_group(rows: Iterable[_Row], names: Iterable[str]) -> dict[str, list[_Row]]:
    rows_of: dict[str, list[_Row]] = {name: [] for name in names}
    for row in rows:
        if row.group in rows_of:
            rows_of[row.group].append(row)
    return rows_of


def _shape(node: Node) -> tuple[object, ...]:
    """Return the facts of a node whose change requires its group to be built again."""
    size = (node.gpus, node.cpus, node.memory_bytes)
    return (node.group, node.zone, node.topology, size)
