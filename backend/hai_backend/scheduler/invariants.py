"""Rules that no plan may break, as executable checks. Tests apply them to every plan, a live server to samples.

Each rule is computed in a simple way from snapshot and plan, without the scheduler's state. The cost of one check grows
with tasks + nodes + (starts × users with queued tasks), so a large cluster can check a sample of its passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState, Snapshot
from hai_backend.scheduler.policy.group_policy import resolve_policy
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.precedence import SPOT, effective_level, run_level, wait_began_at

_Kind = TypeVar("_Kind", Start, Suspend, Wait)


class Violation(NamedTuple):
    """The stable name of a rule, and a sentence that says how the plan breaks it."""

    rule: str
    message: str


def violations(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[Violation]:
    """Yield all violations. Snapshots with invalid rows cannot be checked.

    `plan` must hold a Wait for each task that stays in the queue, in order. `policy` is the server's; groups may have
    their own settings.
    """
    case = _Case(snapshot, plan, policy)
    for name, rule in RULES.items():
        found = [Violation(name, message) for message in rule(case)]
        yield from found
        if found and rule is _one_decision:  # the other rules look up the task of each decision
            return


@dataclass(frozen=True)
class _Case:
    """A snapshot and its plan, with indexes."""

    snapshot: Snapshot
    plan: Plan
    policy: Policy

    @cached_property
    def tasks(self) -> dict[int, SchedTask]:
        return {task.id: task for task in self.snapshot.tasks}

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.snapshot.nodes}

    @cached_property
    def _policies(self) -> dict[str, Policy]:
        groups = self.snapshot.groups
        return {name: resolve_policy(group, self.policy) for name, group in groups.items()}

    def decisions_of(self, kind: type[_Kind]) -> list[_Kind]:
        """Return the decisions of one kind, in order."""
        return [decision for decision in self.plan.decisions if isinstance(decision, kind)]

    def policy_of(self, task: SchedTask) -> Policy:
        """Return the policy of the task's group."""
        return self._policies.get(task.group, self.policy)

    def on_whole_nodes(self, task: SchedTask) -> bool:
        """Return False if the task uses parts of nodes."""
        packed = self.snapshot.groups.get(task.group, Group(task.group)).packed
        return not (packed and (task.gpu or task.cpu or task.memory))

    def seconds(self, run: SchedTask) -> float:
        """Return how long the run has lasted."""
        now = self.snapshot.now
        return now - (now if run.run_started_at is None else run.run_started_at)

    def lifted(self, task: SchedTask) -> bool:
        """Return whether the task has waited for so long that its level was raised."""
        return self.snapshot.now - wait_began_at(task) >= self.policy_of(task).patience_seconds


def _one_decision(case: _Case) -> Iterator[str]:
    """Each task has at most one decision, and its state allows that decision."""
    decided = Counter(decision.task for decision in case.plan.decisions)
    yield from (f"task {task} gets {n} decisions" for task, n in decided.items() if n > 1)
    yield from (f"task {task} is not in the snapshot" for task in decided.keys() - case.tasks)
    for decision in case.plan.decisions:
        task = case.tasks.get(decision.task)
        standing = task.standing if task else None
        if isinstance(decision, Start | Wait) and standing is not SchedulingState.QUEUED:
            yield f"task {decision.task} is {standing}, and starts or waits"
        if isinstance(decision, Suspend) and standing is not SchedulingState.RUNNING:
            yield f"task {decision.task} is {standing}, and is suspended"


def _whole_gang(case: _Case) -> Iterator[str]:
    """Either all ranks of a task start or none, and only on nodes that suit the task."""
    for start in case.decisions_of(Start):
        task = case.tasks[start.task]
        if len(start.nodes) != task.node_count:
            yield f"task {task.id} of {task.node_count} nodes starts on {len(start.nodes)}"
        for name in start.nodes:
            if name not in case.nodes or not _suits(case.nodes[name], task):
                yield f"task {task.id} starts on node {name}, which may not take it"


def _suits(node: Node, task: SchedTask) -> bool:
    """Return whether a node may take a task."""
    named = not task.assigned_nodes or node.name in task.assigned_nodes
    right = node.group == task.group and task.zone in ("", node.zone) and named
    return node.usable and right and node.gpus >= task.gpu


def _one_holder(case: _Case) -> Iterator[str]:
    """No node is allocated twice: a whole node has one task, and each GPU of a packed node has one task."""
    used: Counter[str] = Counter()
    for task in case.snapshot.tasks:
        for name in task.placed:
            used[name] += _units(case, name, task)
    for start in case.decisions_of(Start):
        for name in start.nodes:
            used[name] += _units(case, name, case.tasks[start.task])
            if used[name] > _size(case.nodes.get(name)):
                yield f"node {name} is allocated twice, the second time to task {start.task}"


def _size(node: Node | None) -> int:
    """Return the units of a node: its GPUs, at least one; 0 if the node does not exist."""
    return max(1, node.gpus) if node else 0


def _units(case: _Case, node: str, task: SchedTask) -> int:
    """Return how many units of a node a task uses: GPUs, or the whole node."""
    return _size(case.nodes.get(node)) if case.on_whole_nodes(task) else task.gpu


def _quota(case: _Case) -> Iterator[str]:
    """After all starts, no user has more whole nodes than a row allows, at the level and in total."""
    limits = _quota_limits(case.snapshot)
    used: Counter[tuple[str, str, Priority]] = Counter()
    for task in case.snapshot.tasks:
        for level in (run_level(task, case.policy_of(task)), Priority.AUTO) if task.placed else ():
            used[task.user, task.group, level] += case.on_whole_nodes(task) * len(task.placed)
    for start in case.decisions_of(Start):
        task = case.tasks[start.task]
        for level in (start.priority, Priority.AUTO):
            key = (task.user, task.group, level)
            used[key] += case.on_whole_nodes(task) * task.node_count
            if case.on_whole_nodes(task) and used[key] > limits.get(key, used[key]):
                yield f"task {task.id}: {task.user} holds {used[key]} at {level.name}"


def _quota_limits(snapshot: Snapshot) -> dict[tuple[str, str, Priority], int]:
    """Return the largest row for each user, group and level."""
    limits: dict[tuple[str, str, Priority], int] = {}
    for row in snapshot.quotas:
        key = (row.user, row.group, row.priority)
        limits[key] = max(limits.get(key, 0), row.nodes)
    return limits


def _share_limit(case: _Case) -> Iterator[str]:
    """After all starts, no user group has more whole nodes than its limit."""
    for row in case.snapshot.shares:
        if row.limit is None:
            continue
        members = {
            t.id for t in case.snapshot.tasks if t.group == row.group and t.user in row.users
        }
        used = sum(case.on_whole_nodes(case.tasks[n]) * len(case.tasks[n].placed) for n in members)
        for task in (case.tasks[start.task] for start in case.decisions_of(Start)):
            used += case.on_whole_nodes(task) * task.node_count if task.id in members else 0
            if used > row.limit and task.id in members:
                yield f"task {task.id}: user group {row.name} holds {used} of {row.limit}"


def _guaranteed_share(case: _Case) -> Iterator[str]:
    """After all decisions, tasks of equal levels of other user groups leave a user group its guaranteed nodes."""
    waits = case.decisions_of(Wait)
    promised = {w.task for w in waits if w.why is WaitReason.WAITING_FOR_PREEMPTED}
    suspends = [s for s in case.decisions_of(Suspend) if case.on_whole_nodes(case.tasks[s.task])]
    for row in case.snapshot.shares:
        tasks = [t for t in case.snapshot.tasks if t.group == row.group and t.user in row.users]
        members = {task.id for task in tasks}
        lost = [s for s in suspends if s.task in members]
        different_groups = [s for s in lost if not s.higher and s.for_task not in members]
        gained = promised | {start.task for start in case.decisions_of(Start)}
        retained = sum(len(t.placed) for t in tasks if t.standing is not SchedulingState.LEAVING)
        retained += sum(task.node_count for task in tasks if task.id in gained)
        retained -= sum(len(case.tasks[s.task].placed) for s in lost)
        if different_groups and len(different_groups) == len(lost) and retained < row.guaranteed:
            yield f"user group {row.name} is left {retained} nodes of {row.guaranteed} for equals"


def _suspend(case: _Case) -> Iterator[str]:
    """A run is suspended only for a task with promised nodes.

    For a task of an equal level, a run is suspended only after the minimum time, and only if its user is another one.
    """
    waits = {wait.task: wait for wait in case.decisions_of(Wait)}
    for suspend in case.decisions_of(Suspend):
        run, wait = case.tasks[suspend.task], waits.get(suspend.for_task)
        if wait is None or wait.why is not WaitReason.WAITING_FOR_PREEMPTED:
            yield f"task {run.id} leaves for task {suspend.for_task}, which is promised nothing"
            continue
        policy, newcomer = case.policy_of(run), case.tasks[suspend.for_task]
        level = effective_level(run, policy, case.snapshot.now)[0]
        if run.user == newcomer.user and run.priority is newcomer.priority:
            yield f"task {run.id} leaves for task {newcomer.id}, an equal of its own user"
        if level > wait.priority:
            yield f"task {run.id} at {level.name} leaves for one at {wait.priority.name}"
        if not suspend.higher and case.seconds(run) < policy.minimum_seconds:
            yield f"task {run.id} leaves for an equal before its minimum"


def _inversion(case: _Case) -> Iterator[str]:
    """No task of a lower level starts on nodes on which a queued task that lacks only nodes could have started."""
    blocked = list(_first_blocked(case))
    for start in case.decisions_of(Start):
        task = case.tasks[start.task]
        level = _queued_at(case, task, start.priority)
        for wait in blocked if case.on_whole_nodes(task) else ():
            entry = case.tasks[wait.task]
            suits = sum(_suits(case.nodes[name], entry) for name in start.nodes)
            if level < wait.priority and suits >= entry.node_count:
                yield f"task {start.task} at {start.priority.name} starts before task {entry.id}"


def _first_blocked(case: _Case) -> Iterator[Wait]:
    """Yield the tasks that lack only nodes, without those behind a task that may have a reservation.

    The first task that lacks nodes may keep later tasks from nodes that they would not return in time. The plan does
    not say which task that was, because a later start may have used up its quota. So this yields no task behind a task
    of the same user, nor behind a task that may keep nodes from all tasks.
    """
    users: set[tuple[str, str]] = set()
    closed: set[str] = set()  # groups
    for wait in case.decisions_of(Wait):
        task = case.tasks[wait.task]
        if not wait.place:
            continue
        free = task.group not in closed and (task.group, task.user) not in users
        if free and wait.why is WaitReason.NOT_ENOUGH_NODES:
            yield wait
        users.add((task.group, task.user))
        if not case.policy_of(task).time_slices or case.lifted(task):
            closed.add(task.group)


def _queued_at(case: _Case, task: SchedTask, level: Priority) -> Priority:
    """Return the level of a task in the queue, which is raised if it has waited for too long."""
    if task.spot:
        return SPOT
    return max(level, case.policy_of(task).lifted_to) if case.lifted(task) else level


RULES: dict[str, Callable[[_Case], Iterator[str]]] = {
    "one_decision": _one_decision,
    "whole_gang": _whole_gang,
    "one_holder": _one_holder,
    "quota": _quota,
    "share_limit": _share_limit,
    "guaranteed_share": _guaranteed_share,
    "suspend": _suspend,
    "inversion": _inversion,
}
"""The rules by their stable names, which metrics and the manual use."""
