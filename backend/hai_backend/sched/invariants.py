"""What no plan may ever do, as executable checks for tests; no server runs them.

Each rule is read slowly and simply from snapshot and plan, not from the scheduler's own books.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from hai_backend.domain.node import Group, Node
from hai_backend.domain.plan import Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask, Snapshot, Standing
from hai_backend.sched.appraise import SPOT, effective_level, run_level, since
from hai_backend.sched.policy import Policy

_Kind = TypeVar("_Kind", Start, Suspend, Wait)


def violations(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """A sentence for each rule that the plan breaks; none: all is well. Not for snapshots with bad rows."""
    for rule in (
        _applies,
        _gangs,
        _booking,
        _quota,
        _limits_of_shares,
        _parts,
        _suspensions,
        _inversion,
    ):
        yield from rule(snapshot, plan, policy)


def _of(plan: Plan, kind: type[_Kind]) -> list[_Kind]:
    return [decision for decision in plan.decisions if isinstance(decision, kind)]


def _tasks(snapshot: Snapshot) -> dict[int, SchedTask]:
    return {task.id: task for task in snapshot.tasks}


def _applies(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """One decision a task, and one that can be carried out."""
    tasks, told = _tasks(snapshot), Counter(decision.task for decision in plan.decisions)
    yield from (f"task {task} gets {n} decisions" for task, n in told.items() if n > 1)
    yield from (f"task {task} is not in the snapshot" for task in told.keys() - tasks.keys())
    for decision in plan.decisions:
        standing = tasks[decision.task].standing if decision.task in tasks else None
        if isinstance(decision, Start | Wait) and standing is not Standing.QUEUED:
            yield f"task {decision.task} is {standing}, and starts or waits"
        if isinstance(decision, Suspend) and standing is not Standing.RUNNING:
            yield f"task {decision.task} is {standing}, and is suspended"


def _gangs(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """Whole or absent, and only on nodes that may take tasks."""
    tasks, nodes = _tasks(snapshot), {node.name: node for node in snapshot.nodes}
    for start in _of(plan, Start):
        task = tasks[start.task]
        if len(start.nodes) != task.node_count:
            yield f"task {task.id} of {task.node_count} nodes starts on {len(start.nodes)}"
        for name in start.nodes:
            if name not in nodes or not _may_take(nodes[name], task):
                yield f"task {task.id} starts on node {name}, which may not take it"


def _may_take(node: Node, task: SchedTask) -> bool:
    right = node.group == task.group and task.zone in ("", node.zone)
    return node.usable and right and (not task.assigned_nodes or node.name in task.assigned_nodes)


def _booking(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """No node is given twice: nodes of whole tasks to nobody else, GPUs of packed ones once."""
    nodes, tasks = {node.name: node for node in snapshot.nodes}, _tasks(snapshot)
    used: Counter[str] = Counter()
    for task in snapshot.tasks:
        for name in task.placed:
            used[name] += _share(snapshot, nodes.get(name), task)
    for start in _of(plan, Start):
        for name in start.nodes:
            used[name] += _share(snapshot, nodes.get(name), tasks[start.task])
            if used[name] > _size(nodes.get(name)):
                yield f"node {name} is booked twice, by task {start.task} at last"


def _size(node: Node | None) -> int:
    return max(1, node.gpus) if node else 0


def _share(snapshot: Snapshot, node: Node | None, task: SchedTask) -> int:
    return _size(node) if _whole(snapshot, task) else task.gpu


def _quota(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """With what starts now nobody holds more whole nodes than a row allows, at the level and in total."""
    tasks, limits = _tasks(snapshot), _limits(snapshot)
    held: Counter[tuple[str, str, Priority]] = Counter()
    for task in snapshot.tasks:
        for level in (run_level(task, policy), Priority.AUTO) if task.placed else ():
            held[task.user, task.group, level] += _whole(snapshot, task) * len(task.placed)
    for start in _of(plan, Start):
        task = tasks[start.task]
        for level in (start.priority, Priority.AUTO):
            key = (task.user, task.group, level)
            held[key] += _whole(snapshot, task) * task.node_count
            if _whole(snapshot, task) and held[key] > limits.get(key, held[key]):
                yield f"task {task.id}: {task.user} holds {held[key]} at {level.name}"


def _whole(snapshot: Snapshot, task: SchedTask) -> bool:
    packed = snapshot.groups.get(task.group, Group(task.group)).packed
    return not (packed and (task.gpu or task.cpu or task.memory))


def _limits(snapshot: Snapshot) -> dict[tuple[str, str, Priority], int]:
    limits: dict[tuple[str, str, Priority], int] = {}
    for row in snapshot.quotas:
        key = (row.user, row.group, row.priority)
        limits[key] = max(limits.get(key, 0), row.nodes)
    return limits


def _limits_of_shares(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """With what starts now no user group holds more whole nodes than its limit."""
    tasks = _tasks(snapshot)
    for row in snapshot.shares:
        members = [t for t in snapshot.tasks if t.group == row.group and t.user in row.users]
        held = sum(_whole(snapshot, task) * len(task.placed) for task in members)
        for task in (tasks[start.task] for start in _of(plan, Start)):
            held += _whole(snapshot, task) * task.node_count if task in members else 0
            if row.limit is not None and held > row.limit and task in members:
                yield f"task {task.id}: user group {row.name} holds {held} of {row.limit}"


def _parts(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """Equals of other user groups leave a user group what is guaranteed to it, once all is carried out."""
    tasks, waits = _tasks(snapshot), _of(plan, Wait)
    promised = {w.task for w in waits if w.why is WaitReason.WAITING_FOR_PREEMPTED}
    suspends = [s for s in _of(plan, Suspend) if _whole(snapshot, tasks[s.task])]
    for row in snapshot.shares:
        own = [t for t in snapshot.tasks if t.group == row.group and t.user in row.users]
        lost = [s for s in suspends if tasks[s.task] in own]
        apart = [s for s in lost if not s.higher and tasks[s.for_task] not in own]
        came = promised | {start.task for start in _of(plan, Start)}
        kept = sum(len(t.placed) for t in own if t.standing is not Standing.LEAVING)
        kept += sum(task.node_count for task in own if task.id in came)
        kept -= sum(len(tasks[s.task].placed) for s in lost)
        if apart and len(apart) == len(lost) and kept < row.guaranteed:
            yield f"user group {row.name} is left {kept} nodes of {row.guaranteed} for equals"


def _suspensions(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """Only for a task that is promised nodes; for an equal one never before the minimum of a run, nor one's own."""
    tasks, waits = _tasks(snapshot), {wait.task: wait for wait in _of(plan, Wait)}
    for suspend in _of(plan, Suspend):
        run, wait = tasks[suspend.task], waits.get(suspend.for_task)
        if wait is None or wait.why is not WaitReason.WAITING_FOR_PREEMPTED:
            yield f"task {run.id} leaves for task {suspend.for_task}, which is promised nothing"
            continue
        level, newcomer = effective_level(run, policy, snapshot.now)[0], tasks[suspend.for_task]
        if run.user == newcomer.user and run.priority is newcomer.priority:
            yield f"task {run.id} leaves for task {newcomer.id}, an equal of its own user"
        if level > wait.priority:
            yield f"task {run.id} at {level.name} leaves for one at {wait.priority.name}"
        if not suspend.higher and _seconds(run, snapshot.now) < policy.minimum_seconds:
            yield f"task {run.id} leaves for an equal before its minimum"


def _seconds(run: SchedTask, now: float) -> float:
    return now - (now if run.run_started_at is None else run.run_started_at)


def _inversion(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """No start at a lower level on nodes with which a waiting task that lacks only nodes could have started.

    The first one that lacks nodes may keep later ones from them that would not give them back in time. Which one that
    was the plan does not tell: what started after it may have used up its quota.
    """
    tasks, nodes = _tasks(snapshot), {node.name: node for node in snapshot.nodes}
    ranked = [wait for wait in _of(plan, Wait) if wait.place]
    blocked = [wait for wait in ranked if wait.why is WaitReason.NOT_ENOUGH_NODES]
    for start in _of(plan, Start):
        level = _queued_at(tasks[start.task], start.priority, policy, snapshot.now)
        for wait in blocked if _whole(snapshot, tasks[start.task]) else ():
            waiting = tasks[wait.task]
            suits = sum(_may_take(nodes[name], waiting) for name in start.nodes)
            ahead = ranked[: ranked.index(wait)]
            kept = any(_kept_for(tasks[o.task], waiting, policy, snapshot.now) for o in ahead)
            if level < wait.priority and suits >= waiting.node_count and not kept:
                yield f"task {start.task} at {start.priority.name} starts before task {waiting.id}"


def _queued_at(task: SchedTask, level: Priority, policy: Policy, now: float) -> Priority:
    """The level at which it stood in the queue: who has waited for too long was lifted."""
    if task.spot:
        return SPOT
    return max(level, policy.lifted_to) if _lifted(task, policy, now) else level


def _lifted(task: SchedTask, policy: Policy, now: float) -> bool:
    return now - since(task) >= policy.patience_seconds


def _kept_for(first: SchedTask, waiting: SchedTask, policy: Policy, now: float) -> bool:
    firm = first.user == waiting.user or not policy.time_slices or _lifted(first, policy, now)
    return first is not waiting and firm
