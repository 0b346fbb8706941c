"""Changes that would help a task, victims and numbers as messages, with the sentences that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import isfinite

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.formatting import format_utc
from hai_backend.domain.node import Node, NodeStatus
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task
from hai_backend.scheduler.explain.blockers import NodeNumbers, QuotaUse
from hai_backend.scheduler.explain.dry_run import Victim
from hai_backend.scheduler.explain.remedy import Cause, Change, Remedy

_CAUSES = {
    Cause.PROTECTION: "when task {task}'s protection ends",
    Cause.SLICE: "when task {task} has used its slice",
    Cause.DEMOTION: "when the run of task {task} is demoted",
    Cause.DELAY: "when its delay has passed",
    Cause.TURN: "when it has waited for a slice",
    Cause.LIFT: "when it has waited so long that it is lifted",
    Cause.RANK: "when ranks have changed",
}


def remedy_to_proto(remedy: Remedy, task: Task, rows: Iterable[QuotaUse]) -> pb.Flip:
    """`rows` are those of the task's user; an id of 0 stands for a task that is not submitted yet."""
    allowed = {row.row: row.allowed for row in rows}
    return pb.Flip(
        change=remedy.change.value,
        message=remedy_text(remedy, task),
        quotas=[
            pb.QuotaUse(priority=row, allowed=allowed.get(row, 0), after=allowed.get(row, 0) + more)
            for row, more in remedy.rows
        ],
        count=remedy.count or len(remedy.nodes),
        priority=remedy.level if remedy.change is Change.LEVEL else 0,
        time=to_timestamp(remedy.at) if remedy.change is Change.TIME else None,
        cause=remedy.cause.value if remedy.change is Change.TIME else "",
        id=remedy.task,
        nodes=remedy.nodes,
        starts=remedy.starts,
    )


def remedy_text(remedy: Remedy, task: Task) -> str:
    """What to change, and what comes of it."""
    return f"{_what(remedy, task)} ({'starts at once' if remedy.starts else 'others then leave for it'})"


def _what(remedy: Remedy, task: Task) -> str:
    group = task.spec.resource.group
    match remedy.change:
        case Change.QUOTA:
            rows = " and ".join(f"{more} more {_row(row)}" for row, more in remedy.rows)
            return f"quota of {task.user} in {group}: {rows}"
        case Change.SHARE:
            return f"{remedy.count} more in the limit of the user group of {task.user} in {group}"
        case Change.FEWER_NODES:
            return f"ask for {nodes(remedy.count)} instead of {task.node_count}"
        case Change.LEVEL:
            return f"submit it at {remedy.level.name}" if not task.id else _priority(remedy, task)
        case Change.TIME:
            return (
                f"wait: {_CAUSES[remedy.cause].format(task=remedy.task)}, {format_utc(remedy.at)}"
            )
        case Change.UNCORDON:
            return f"operators can bring back cordoned nodes: {', '.join(remedy.nodes)}"
        case Change.MORE_NODES:
            return f"{remedy.count} more free node{'s' if remedy.count > 1 else ''} in {group}"
        case Change.RESUME:
            return f"release it: hai resume {task.id}"


def _priority(remedy: Remedy, task: Task) -> str:
    return f"change its priority: hai priority {task.id} {remedy.level.name}"


def _row(row: Priority) -> str:
    return "in total" if row is Priority.AUTO else f"at {row.name}"


def nodes(count: int) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} node{'' if count == 1 else 's'}"


def quota_to_proto(row: QuotaUse) -> pb.QuotaUse:
    """One row."""
    return pb.QuotaUse(priority=row.row, allowed=row.allowed, held=row.used, after=row.after)


def numbers_to_proto(numbers: NodeNumbers, members: Iterable[Node]) -> pb.NodeNumbers:
    """`members`: the nodes of the group, and of the zone if the task names one."""
    known = list(members)
    status = Counter(node.status for node in known)
    kept = ("free", "leaving", "takeable", "protected", "firm")
    counts = {name: getattr(numbers, name) for name in kept}
    until = numbers.protected_until
    return pb.NodeNumbers(
        **counts,
        total=len(known),
        usable=sum(counts.values()),
        cordoned=status[NodeStatus.CORDONED],
        not_ready=status[NodeStatus.NOT_READY],
        protected_until=to_timestamp(until) if isfinite(until) else None,
    )


def victim_to_proto(victim: Victim, name: Callable[[int], str]) -> pb.Victim:
    """`name` of a task; empty where the caller may not know it."""
    return pb.Victim(
        id=victim.task,
        name=name(victim.task),
        user=victim.user,
        nodes=victim.nodes,
        priority=victim.level,
        lost_node_seconds=victim.lost,
        cost_node_seconds=victim.cost,
        asked=victim.asked,
        reason=victim.reason,
    )
