"""Who stands where: the snapshot sorted by group, before any question is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from hai_backend.domain.node import Group, Node
from hai_backend.domain.plan import Stop, Wait, WaitReason
from hai_backend.domain.snapshot import QuotaRow, SchedTask, Snapshot, Standing
from hai_backend.sched.check import fault
from hai_backend.sched.order import demoted_at, effective_level, run_level
from hai_backend.sched.policy import Policy
from hai_backend.sched.pool import FIXED, LEAVING, Amount, Holder, Need, ask_of, size_of
from hai_backend.sched.preempt import loss
from hai_backend.sched.quota import Quotas, units_of


@dataclass(slots=True, eq=False)
class GroupSurvey:
    """One group: its nodes, its queue, and what its users hold."""

    name: str
    exists: bool
    packed: bool
    quotas: Quotas
    nodes: dict[str, Node] = field(default_factory=dict)
    queue: list[SchedTask] = field(default_factory=list)
    largest: Amount = (0, 0, 0)
    _needs: dict[object, Need] = field(default_factory=dict)

    def ask(self, task: SchedTask) -> Amount | None:
        """What a rank takes of a node; None: all of it."""
        return ask_of(task.gpu, task.cpu, task.memory, packed=self.packed)

    def need(self, task: SchedTask) -> Need:
        """What the task asks for; equal for equal tasks."""
        ask = self.ask(task)
        shape = (task.node_count, ask, task.zone, task.assigned_nodes)
        found = self._needs.get(shape)
        if found is None:
            found = self._needs[shape] = Need(
                count=task.node_count,
                whole=ask is None,
                ask=ask or (0, 0, 0),
                zone=task.zone,
                only=task.assigned_nodes,
                units=units_of(task.node_count, ask, self.largest),
            )
        return found


@dataclass(slots=True, eq=False)
class Survey:
    """The whole snapshot."""

    groups: dict[str, GroupSurvey]
    on: dict[str, list[Holder]]  # by node name, once for each rank
    stops: list[Stop]
    refused: dict[int, Wait]  # bad rows
    alarms: list[float]  # when time alone changes something


def survey(snapshot: Snapshot, policy: Policy) -> Survey:
    """Sort nodes, quota rows, holders and queued tasks by group; turn bad rows away."""
    found = Survey(_groups(snapshot, policy), {}, [], {}, [])
    names = {node.name for node in snapshot.nodes}
    twice = _repeated(task.id for task in snapshot.tasks)
    for task in snapshot.tasks:
        if task.standing is Standing.QUEUED:
            _queue(found, task, snapshot, twice)
        else:
            _hold(found, task, snapshot, policy, names, twice)
    found.stops.sort(key=lambda stop: stop.task)
    return found


def _repeated(keys: Iterable[Hashable]) -> set[Hashable]:
    return {key for key, number in Counter(keys).items() if number > 1}


def _groups(snapshot: Snapshot, policy: Policy) -> dict[str, GroupSurvey]:
    existing = {node.group for node in snapshot.nodes} | set(snapshot.groups)
    rows: dict[str, list[QuotaRow]] = {}
    for row in snapshot.quotas:
        rows.setdefault(row.group, []).append(row)
    groups = {
        name: GroupSurvey(
            name, name in existing, _packed(snapshot, name), Quotas(rows.get(name, ()), policy)
        )
        for name in sorted(existing | {task.group for task in snapshot.tasks})
    }
    ambiguous = _repeated(
        node.name for node in snapshot.nodes
    )  # nobody knows which machine is meant
    for node in snapshot.nodes:
        if node.name not in ambiguous:
            _add_node(groups[node.group], node)
    return groups


def _packed(snapshot: Snapshot, group: str) -> bool:
    return snapshot.groups.get(group, Group(group)).packed


def _add_node(group: GroupSurvey, node: Node) -> None:
    group.nodes[node.name] = node
    gpus, cpus, memory = size_of(node)
    group.largest = (
        max(group.largest[0], gpus),
        max(group.largest[1], cpus),
        max(group.largest[2], memory),
    )


def _queue(found: Survey, task: SchedTask, snapshot: Snapshot, twice: set[Hashable]) -> None:
    wrong = "two tasks have this id" if task.id in twice else fault(task)
    if wrong:
        found.refused[task.id] = Wait(task.id, WaitReason.INVALID, wrong)
    elif task.user in snapshot.inactive_users:
        found.stops.append(Stop(task.id, f"user {task.user} is not active"))
    else:
        found.groups[task.group].queue.append(task)
        if task.not_before > snapshot.now and not task.held:
            found.alarms.append(task.not_before)


def _hold(
    found: Survey,
    task: SchedTask,
    snapshot: Snapshot,
    policy: Policy,
    names: set[str],
    twice: set[Hashable],
) -> None:
    holder = _holder(task, snapshot, policy)
    if task.id in twice:
        holder.level = FIXED
    elif task.standing is Standing.RUNNING and task.user in snapshot.inactive_users:
        found.stops.append(Stop(task.id, f"user {task.user} is not active"))
        holder.level = LEAVING
    elif (demotion := demoted_at(task, policy)) is not None and demotion > snapshot.now:
        found.alarms.append(demotion)
    _count(found, task, holder, names)


def _holder(task: SchedTask, snapshot: Snapshot, policy: Policy) -> Holder:
    level: int = effective_level(task, policy, snapshot.now)
    if task.standing is Standing.LEAVING:
        level = LEAVING if task.leaves_free else FIXED
    return Holder(
        task=task.id,
        level=level,
        user=task.user,
        asked=task.priority,
        run_level=run_level(task, policy),
        loss=loss(task, policy, snapshot.now),
        wanted_by=task.suspended_for,
    )


def _count(found: Survey, task: SchedTask, holder: Holder, names: set[str]) -> None:
    group = found.groups[task.group]
    placed = [name for name in task.placed if name in names]
    holder.ask = group.ask(task)
    group.quotas.hold(task.user, holder.run_level, units_of(len(placed), holder.ask, group.largest))
    for name in placed:
        found.on.setdefault(name, []).append(holder)
