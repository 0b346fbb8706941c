"""Why a task stays in the queue: a reason, sentences with numbers, its position. Read after a pass, before its `undo`.

Nodes that the pass has given or promised to other tasks count as held by these tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hai_backend.domain.formatting import format_count, format_number
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.scheduler import quota
from hai_backend.scheduler.admission import find_deferral
from hai_backend.scheduler.capacity.fit import rank_capacity
from hai_backend.scheduler.capacity.node_info import NodeClass, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import UNIT, Request
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.queue.precedence import level_name
from hai_backend.scheduler.queue.queue import QueueEntry
from hai_backend.scheduler.quota import Limit

_WITHOUT_POSITION = (WaitReason.QUOTA_EXCEEDED, WaitReason.SHARE_EXCEEDED)
_COMPETES = (WaitReason.NOT_ENOUGH_NODES, WaitReason.WAITING_FOR_PREEMPTED)


class Explanations:
    """Why the tasks of a group wait after a pass. Sentences are made when they are needed, once for equal tasks."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._group = cycle.group
        self._all: dict[int, Wait] | None = None
        self._texts: dict[tuple[Request, Priority], str] = {}
        self._lower: dict[tuple[NodeClass, Priority], int] = {}

    def explain_all(self) -> dict[int, Wait]:
        """Return one Wait for each task that was not started: first tasks that do not compete, then the queue in order.

        A task that lacks quota for now has a position, but does not count in the positions of other tasks. A task that
        its quota or share can never allow has no position.
        """
        if self._all is None:
            waits = [*self._not_competing(), *self._competing()]
            self._all = {wait.task: wait for wait in waits}
        return self._all

    def explain(self, task_id: int) -> Wait | None:
        """Return why a task waits, without its position; None if it does not wait."""
        entry = self._group.entries.get(task_id)
        if entry is None or not self._feasible(entry):
            return self._wait_outside_queue(task_id)
        if task_id in self._cycle.started:
            return None
        why, text = self.reason(entry)
        return Wait(task_id, why, text, priority=entry.level)

    def _competing(self) -> Iterator[Wait]:
        ahead: list[int] = []
        position = 0
        for entry in self._cycle.in_order():
            if entry.task.id in self._cycle.started:
                continue
            why, text = self.reason(entry)
            if why in _WITHOUT_POSITION:
                yield Wait(entry.task.id, why, text, 0, entry.level, ())
            else:
                yield Wait(entry.task.id, why, text, position + 1, entry.level, tuple(ahead))
            if why in _COMPETES:
                position += 1
                if len(ahead) < self._group.policy.ahead_limit:
                    ahead.append(entry.task.id)

    def _not_competing(self) -> Iterator[Wait]:
        group = self._group
        infeasible = (task for task, w in group.entries.items() if not self._feasible(w))
        for task in sorted([*group.deferred, *infeasible]):
            if (wait := self._wait_outside_queue(task)) is not None:
                yield wait

    def _wait_outside_queue(self, task_id: int) -> Wait | None:
        """Return why a task is deferred or infeasible; None if it is neither."""
        entry, deferred = self._group.entries.get(task_id), self._group.deferred.get(task_id)
        if entry is not None:
            refusal, level = self._group.feasible.refusal(entry.request), entry.task.priority
        elif deferred is not None:
            refusal, level = find_deferral(deferred, self._cycle.now), deferred.priority
        else:
            return None
        return Wait(task_id, *refusal, priority=level) if refusal else None

    def _feasible(self, entry: QueueEntry) -> bool:
        return self._group.feasible.refusal(entry.request) is None

    def reason(self, entry: QueueEntry) -> tuple[WaitReason, str]:
        """Return why a feasible task was not started."""
        group, request, level = self._group, entry.request, entry.level
        promised = self._cycle.promised.get(entry.task.id)
        if promised is not None:
            return WaitReason.WAITING_FOR_PREEMPTED, nodes_promised(entry, promised)
        limits = group.quotas.limits(*entry.account)
        if limits and not quota.fits(limits, request.units):
            return out_of_quota(limits, entry, group.name)
        if row := group.shares.exceeded(entry):
            return out_of_share(row, group.shares.used(row.name), entry)
        text = self._texts.get((request, level))
        if text is None:
            lower = self._allocated_below(request, level)
            text = not_enough(group.pool, request, level, group.name, lower)
            self._texts[request, level] = text
        return WaitReason.NOT_ENOUGH_NODES, text

    def _allocated_below(self, request: Request, level: Priority) -> int:
        """Return how many of the suitable nodes only tasks below a level hold. Each class of nodes is counted once."""
        pool = self._group.pool
        if request.node_names:
            return _count_below(pool.nodes_for(request), level)
        classes = pool.classes_for(request)
        for node_class in classes:
            if (node_class, level) not in self._lower:
                self._lower[node_class, level] = _count_below(node_class.nodes, level)
        return sum(self._lower[node_class, level] for node_class in classes)


def not_enough(pool: Pool, request: Request, level: Priority, group: str, lower: int) -> str:
    """Say how many usable nodes suit a request, and what occupies them after the pass.

    `lower` is the number of nodes that only tasks below `level` hold.
    """
    name, empty = level_name(level), pool.count(request, Occupancy.EMPTY)
    releasing = pool.count(request, Occupancy.RELEASING) - empty
    total = pool.count(request, Occupancy.ALLOCATED)
    would_suffice = request.whole_nodes and empty + releasing + lower >= request.count
    parts = []
    if empty:
        parts.append(f"{_amount(empty, total)} {_are(empty)} free")
    if releasing:
        parts.append(f"{_amount(releasing, total)} {_are(releasing)} being released")
    if lower:
        restriction = ", but cannot be suspended now" if would_suffice else ""
        parts.append(f"tasks below {name} hold {_amount(lower, total)}{restriction}")
    if rest := total - empty - releasing - lower:
        parts.append(f"tasks at {name} or above hold {_amount(rest, total)}")
    suitable = "usable node" if total == len(pool.nodes) else "suitable node"
    zone = f"#{request.zone}" if request.zone else ""
    text = f"Needs {request}. Group {group}{zone} has {format_count(total, suitable)}; {', '.join(parts)}."
    if request.whole_nodes:
        return text
    fitting_count = rank_capacity(pool, request, Occupancy.EMPTY)
    return f"{text} There is room for {fitting_count} of {format_count(request.count, 'rank')} now."


def _amount(count: int, total: int) -> str:
    if count < total:
        return str(count)
    return f"all {total}" if total > 1 else "it"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _count_below(nodes: Iterable[NodeInfo], level: Priority) -> int:
    return sum(node.occupancy is Occupancy.ALLOCATED and _below(node, level) for node in nodes)


def _below(node: NodeInfo, level: Priority) -> bool:
    return all(
        allocation.occupancy is Occupancy.RELEASING
        or (allocation.precedence is not None and allocation.precedence.level < level)
        for allocation in node.allocations
    )


def out_of_quota(limits: Iterable[Limit], entry: QueueEntry, group: str) -> tuple[WaitReason, str]:
    """Say which limit the task exceeds, now or for ever."""
    units = entry.request.units
    limit = min(limits, key=lambda limit: (limit.allowed >= units, limit.available))
    row = "in total" if limit.row is Priority.AUTO else f"at {limit.row.name}"
    text = (
        f"Needs {format_count(units / UNIT, 'node')}. User {entry.task.user} may hold {_nodes(limit.allowed)} {row} "
        f"in group {group} and holds {_nodes(limit.used)}."
    )
    exceeded = limit.allowed < units
    return (WaitReason.QUOTA_EXCEEDED if exceeded else WaitReason.OUT_OF_QUOTA), text


def out_of_share(row: ShareRow, used: int, entry: QueueEntry) -> tuple[WaitReason, str]:
    """Say that the task exceeds the limit of its user group, now or for ever."""
    assert row.limit is not None  # it is exceeded
    text = (
        f"Needs {format_count(entry.request.units / UNIT, 'node')}. User group {row.name} may hold {row.limit} "
        f"in group {row.group} and holds {_nodes(used)}."
    )
    exceeded = row.limit * UNIT < entry.request.units
    return (WaitReason.SHARE_EXCEEDED if exceeded else WaitReason.OUT_OF_SHARE), text


def nodes_promised(entry: QueueEntry, releasing: tuple[int, ...]) -> str:
    """Say which tasks must leave the nodes that are promised to a task."""
    names = ", ".join(map(str, releasing[:10]))
    more = f" and {len(releasing) - 10} more" if len(releasing) > 10 else ""
    tasks = f"task {names} has" if len(releasing) == 1 else f"tasks {names}{more} have"
    return f"Is promised {entry.request}. Starts when {tasks} left."


def _nodes(units: int) -> str:
    return format_number(units / UNIT)
