"""Converts remedies, victims, quotas and node counts to messages, with sentences for people.

A remedy is a change that would let a waiting task start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import isfinite

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.formatting import format_count, format_utc
from hai_backend.domain.node import Node, NodeStatus
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task
from hai_backend.scheduler.explain.blockers import NodeNumbers, QuotaUse
from hai_backend.scheduler.explain.dry_run import Victim
from hai_backend.scheduler.explain.remedy import Cause, Change, Remedy

_CAUSE_TEXTS = {
    Cause.PROTECTION: "when task {task}'s protection ends",
    Cause.SLICE: "when task {task} has used its slice",
    Cause.DEMOTION: "when the run of task {task} is demoted",
    Cause.DELAY: "when its delay has passed",
    Cause.TURN: "when it has waited for a slice",
    Cause.LIFT: "when it has waited so long that it is lifted",
    Cause.RANK: "when ranks have changed",
}


def remedy_to_proto(remedy: Remedy, task: Task, rows: Iterable[QuotaUse]) -> pb.Flip:
    """Convert a remedy. `rows` are the quotas of the user of the task. A task that is not submitted has the id 0."""
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
    """Describe the change and its effect."""
    effect = "starts at once" if remedy.starts else "others are then suspended for it"
    return f"{_describe_change(remedy, task)} ({effect})"


def _describe_change(remedy: Remedy, task: Task) -> str:
    group = task.spec.resource.group
    match remedy.change:
        case Change.QUOTA:
            rows = " and ".join(f"{more} more {_level_text(row)}" for row, more in remedy.rows)
            return f"quota of {task.user} in {group}: {rows}"
        case Change.SHARE:
            return f"{remedy.count} more in the limit of the user group of {task.user} in {group}"
        case Change.FEWER_NODES:
            return f"ask for {format_count(remedy.count, 'node')} instead of {task.node_count}"
        case Change.LEVEL if task.id:
            return f"change its priority: hai priority {task.id} {remedy.level.name}"
        case Change.LEVEL:
            return f"submit it at {remedy.level.name}"
        case Change.TIME:
            cause = _CAUSE_TEXTS[remedy.cause].format(task=remedy.task)
            return f"wait: {cause}, {format_utc(remedy.at)}"
        case Change.UNCORDON:
            return f"operators can bring back cordoned nodes: {', '.join(remedy.nodes)}"
        case Change.MORE_NODES:
            return f"{format_count(remedy.count, 'more free node')} in {group}"
        case Change.RESUME:
            return f"release it: hai resume {task.id}"


def _level_text(row: Priority) -> str:
    return "in total" if row is Priority.AUTO else f"at {row.name}"


def quota_to_proto(row: QuotaUse) -> pb.QuotaUse:
    return pb.QuotaUse(priority=row.row, allowed=row.allowed, held=row.used, after=row.after)


def numbers_to_proto(numbers: NodeNumbers, members: Iterable[Node]) -> pb.NodeNumbers:
    """Convert node counts. `members` are the nodes of the group, or of its zone if the task names one."""
    nodes = list(members)
    status = Counter(node.status for node in nodes)
    usable_kinds = ("free", "leaving", "takeable", "protected", "firm")
    counts = {name: getattr(numbers, name) for name in usable_kinds}
    until = numbers.protected_until
    return pb.NodeNumbers(
        **counts,
        total=len(nodes),
        usable=sum(counts.values()),
        cordoned=status[NodeStatus.CORDONED],
        not_ready=status[NodeStatus.NOT_READY],
        protected_until=to_timestamp(until) if isfinite(until) else None,
    )


def victim_to_proto(victim: Victim, visible_name: Callable[[int], str]) -> pb.Victim:
    """Convert a victim. `visible_name` returns the name of a task, or an empty text if the caller may not see it."""
    return pb.Victim(
        id=victim.task,
        name=visible_name(victim.task),
        user=victim.user,
        nodes=victim.nodes,
        priority=victim.level,
        lost_node_seconds=victim.lost,
        cost_node_seconds=victim.cost,
        asked=victim.asked,
        reason=victim.reason,
    )
