"""Decides which tasks compete for nodes.

A task does not compete if its row is invalid, if it is deferred, if its user is inactive, or if the nodes of its group
cannot meet its request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isfinite

from hai_backend.domain.formatting import format_count, format_list, format_utc
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Stop, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.capacity.resources import Resources, covers, ranks_in, size_of

Refusal = tuple[WaitReason, str]
"""Why a task does not compete: a reason, and a sentence for its user."""


def find_fault(task: SchedTask) -> str:
    """Say what is wrong with the row of a queued task, or return an empty text."""
    count, gpu, cpu, memory = task.node_count, task.gpu, task.cpu, task.memory
    if not (type(count) is type(gpu) is type(cpu) is type(memory) is int):
        return "node_count, gpu, cpu and memory must be integers."
    if type(task.priority) is not Priority:
        return f"priority {task.priority!r} must be one of {', '.join(p.name for p in Priority)}."
    if count <= 0 or gpu < 0 or cpu < 0 or memory < 0:
        return f"Requests {task.node_count} nodes with {task.gpu} gpus, {task.cpu} cpus, {task.memory} GB."
    since, restart = task.waiting_since or 0.0, (task.restart_seconds or 0.0) + task.save_seconds
    times = task.created_at + task.not_before + task.custom_rank + task.run_seconds
    if not isfinite(times + since + restart):
        return "custom_rank or a time is not a finite number."
    if task.assigned_nodes and len(set(task.assigned_nodes)) != task.node_count:
        return f"Requests {format_count(count, 'node')} but names {', '.join(task.assigned_nodes)}."
    return ""


def find_deferral(task: SchedTask, now: float) -> Refusal | None:
    """Return why a task may not start yet: it is held, depends on other tasks or backs off. None if it may start."""
    if task.held:
        return WaitReason.HELD, "Held by its user. Resume it to put it back in the queue."
    if task.awaited:
        return WaitReason.AFTER, f"Waits for task {format_list(task.awaited)} to end."
    if task.not_before > now:
        return WaitReason.BACKING_OFF, f"May not start before {format_utc(task.not_before)}."
    return None


class Admission:
    """Refuses invalid tasks and stops the tasks of inactive users; stores both decisions."""

    def __init__(self) -> None:
        self.inactive_users: frozenset[str] = frozenset()
        self.refused: dict[int, Wait] = {}
        self.stops: dict[int, Stop] = {}

    def admit(self, task: SchedTask) -> bool:
        """Return whether a queued task may be offered nodes. If not, store why."""
        if self.refused:
            self.refused.pop(task.id, None)
        if fault := find_fault(task):
            self.refuse(task.id, fault)
            return False
        # The first check is the quick one: usually all users are active.
        return not (self.inactive_users or self.stops) or not self.must_stop(task)

    def refuse(self, task_id: int, fault: str) -> None:
        """Refuse a task whose row is invalid."""
        self.refused[task_id] = Wait(task_id, WaitReason.INVALID, fault)

    def must_stop(self, task: SchedTask) -> bool:
        """Return whether a task must stop because its user is not active. If so, store the decision."""
        stops = task.user in self.inactive_users
        if stops:
            self.stops[task.id] = Stop(task.id, f"user {task.user} is not active")
        elif self.stops:
            self.stops.pop(task.id, None)
        return stops

    def remove(self, task_id: int) -> None:
        """Remove the decisions about a task that has ended."""
        self.refused.pop(task_id, None)
        self.stops.pop(task_id, None)


class Feasibility:
    """Decides whether all nodes of a group together can meet a request, and whether the usable nodes alone can."""

    def __init__(self, group: str, exists: bool, nodes: Mapping[str, Node], pool: Pool) -> None:
        self._group, self._exists, self._nodes, self._pool = group, exists, nodes, pool
        self._refusals: dict[Request, Refusal | None] = {}
        self._max_ranks: dict[Request, int] = {}
        self._classes = _count_classes(nodes.values())

    def usable_changed(self) -> None:
        """Decide about all requests again, because a node became usable or unusable."""
        self._refusals.clear()

    def refusal(self, request: Request) -> Refusal | None:
        """Return why the request cannot be met even if no task runs in the group, or None if it can."""
        if request not in self._refusals:
            self._refusals[request] = self._find_refusal(request)
        return self._refusals[request]

    def _find_refusal(self, request: Request) -> Refusal | None:
        """Compute why the request cannot be met."""
        if not self._exists:
            return WaitReason.NO_SUCH_GROUP, f"Node group {self._group!r} does not exist."
        where = f"Group {self._group}{'#' + request.zone if request.zone else ''}"
        missing = [name for name in request.node_names if name not in self._nodes]
        if missing:
            return WaitReason.NO_SUCH_NODE, f"{where} has no node {', '.join(missing)}."
        most = self._ranks_in_group(request)
        if most < request.count:
            return (
                WaitReason.GROUP_TOO_SMALL,
                f"Needs {request}. {where} has room for {most}.",
            )
        usable = self._pool.usable(request)
        if usable < request.count:
            text = f"Needs {request}. {where} has room for {most}; its ready, uncordoned nodes have room for {usable}."
            return WaitReason.NODES_UNUSABLE, text
        return None

    def _ranks_in_group(self, request: Request) -> int:
        """Return how many ranks of a request fit on all nodes of the group, usable or not."""
        if request not in self._max_ranks:
            named = (self._nodes[name] for name in request.node_names)
            classes = _count_classes(named) if request.node_names else self._classes
            ranks = (
                number * self._ranks(*zone_and_size, request)
                for zone_and_size, number in classes.items()
            )
            self._max_ranks[request] = sum(ranks)
        return self._max_ranks[request]

    @staticmethod
    def _ranks(zone: str, size: Resources, request: Request) -> int:
        if request.zone not in ("", zone) or not covers(size, request.resources):
            return 0
        return 1 if request.whole_nodes or request.node_names else ranks_in(size, request.resources)


def _count_classes(nodes: Iterable[Node]) -> Counter[tuple[str, Resources]]:
    """Return how many nodes there are of each zone and size."""
    return Counter((node.zone, size_of(node)) for node in nodes)
