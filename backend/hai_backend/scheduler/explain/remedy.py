"""A change after which a queued task would get nodes, and the snapshot with that change applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, SchedTask, Snapshot
from hai_backend.scheduler.policy.policy import Policy


class Change(StrEnum):
    """What is changed. Users see these names, so they must not change."""

    QUOTA = (
        "QUOTA"  # the user may use more nodes at levels, or in total for AUTO, according to `rows`
    )
    SHARE = "SHARE"  # the limit of the user group grows by `count` nodes
    FEWER_NODES = "FEWER_NODES"  # the task requests `count` nodes
    LEVEL = "LEVEL"  # the task requests `level`
    TIME = "TIME"  # time passes until `at`, because of `cause`
    UNCORDON = "UNCORDON"  # `nodes` are uncordoned
    MORE_NODES = "MORE_NODES"  # `count` free nodes are added to the group
    RESUME = "RESUME"  # the task is resumed


class Cause(StrEnum):
    """What changes with time."""

    PROTECTION = "PROTECTION"  # the protection of the run of `task` ends
    SLICE = "SLICE"  # the run of `task` has used its slice
    DEMOTION = "DEMOTION"  # the run of `task` is demoted
    DELAY = "DELAY"  # the delay of the task ends
    TURN = "TURN"  # the task has waited for one slice, and its user has no nodes
    LIFT = "LIFT"  # the task has waited too long and is lifted
    RANK = "RANK"  # the merit of a run or task changes


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that suffices. `change` says which fields are set.

    `starts` says whether the task starts at once; otherwise it is promised nodes.
    """

    change: Change
    rows: tuple[tuple[Priority, int], ...] = ()
    count: int = 0
    level: Priority = Priority.AUTO
    at: float = 0.0
    cause: Cause = Cause.RANK
    task: int = 0
    nodes: tuple[str, ...] = ()
    starts: bool = False


def apply_remedy(snapshot: Snapshot, task_id: int, remedy: Remedy, policy: Policy) -> Snapshot:
    """Return the snapshot with the change applied. `policy` is that of the task's group."""
    match remedy.change:
        case Change.QUOTA:
            return _with_quota(snapshot, task_id, remedy.rows, policy)
        case Change.SHARE:
            return _with_limit(snapshot, task_id, remedy.count)
        case Change.FEWER_NODES:
            return _with_task(snapshot, task_id, lambda t: replace(t, node_count=remedy.count))
        case Change.LEVEL:
            return _with_task(snapshot, task_id, lambda t: replace(t, priority=remedy.level))
        case Change.RESUME:
            return _with_task(snapshot, task_id, lambda t: replace(t, held=False, not_before=0.0))
        case Change.TIME:
            return replace(snapshot, now=remedy.at)
        case Change.UNCORDON:
            nodes = (_uncordoned(n) if n.name in remedy.nodes else n for n in snapshot.nodes)
            return replace(snapshot, nodes=tuple(nodes))
        case Change.MORE_NODES:
            return _with_nodes(snapshot, task_id, remedy.count)


def find_task(snapshot: Snapshot, task_id: int) -> SchedTask:
    """Return the task with this id."""
    return next(task for task in snapshot.tasks if task.id == task_id)


def allowed_nodes(
    rows: Iterable[QuotaRow], task: SchedTask, level: Priority, policy: Policy
) -> int:
    """Return how many nodes the task's user may use at a level, or in total for AUTO."""
    matching = (r for r in rows if (r.user, r.group, r.priority) == (task.user, task.group, level))
    default = 0 if level is Priority.AUTO else policy.default_quota or 0
    return max((row.nodes for row in matching), default=default)


def _with_task(
    snapshot: Snapshot, task_id: int, change: Callable[[SchedTask], SchedTask]
) -> Snapshot:
    tasks = (change(task) if task.id == task_id else task for task in snapshot.tasks)
    return replace(snapshot, tasks=tuple(tasks))


def _with_quota(
    snapshot: Snapshot, task_id: int, more: tuple[tuple[Priority, int], ...], policy: Policy
) -> Snapshot:
    task, rows = find_task(snapshot, task_id), snapshot.quotas
    for level, nodes in more:
        new = QuotaRow(
            task.user, task.group, level, allowed_nodes(rows, task, level, policy) + nodes
        )
        rows = (*(r for r in rows if replace(r, nodes=new.nodes) != new), new)
    return replace(snapshot, quotas=rows)


def _with_limit(snapshot: Snapshot, task_id: int, more: int) -> Snapshot:
    task = find_task(snapshot, task_id)
    return replace(
        snapshot,
        shares=tuple(
            replace(row, limit=row.limit + more)
            if row.limit is not None and row.group == task.group and task.user in row.users
            else row
            for row in snapshot.shares
        ),
    )


def _with_nodes(snapshot: Snapshot, task_id: int, count: int) -> Snapshot:
    """Add nodes that equal the largest node of the group that the task could use."""
    task = find_task(snapshot, task_id)
    model = max(candidate_nodes(snapshot, task), key=_size)
    free = replace(model, cordoned=False, held="", lift="", state=NodeState.READY)
    new = (replace(free, name=f"{model.name}~{i}") for i in range(count))
    return replace(snapshot, nodes=(*snapshot.nodes, *new))


def candidate_nodes(snapshot: Snapshot, task: SchedTask) -> list[Node]:
    """Return the nodes of the task's group and zone, in any state."""
    in_group = (node for node in snapshot.nodes if node.group == task.group)
    return [node for node in in_group if task.zone in ("", node.zone)]


def _uncordoned(node: Node) -> Node:
    return replace(node, cordoned=False, held="", lift="")


def _size(node: Node) -> tuple[int, int, int]:
    return (node.gpus, node.cpus, node.memory_bytes)
