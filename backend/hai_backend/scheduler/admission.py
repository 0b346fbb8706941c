"""Which tasks take part in scheduling: not invalid rows, deferred tasks, tasks of inactive users, infeasible
requests.
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

Verdict = tuple[WaitReason, str]
"""Why a task waits, and the sentence for its user."""


def fault(task: SchedTask) -> str:
    """What is wrong with the row of a queued task; empty: nothing."""
    count, gpu, cpu, memory = task.node_count, task.gpu, task.cpu, task.memory
    if not (type(count) is type(gpu) is type(cpu) is type(memory) is int):
        return "node_count, gpu, cpu and memory must be whole numbers"
    if type(task.priority) is not Priority:
        return f"priority {task.priority!r} is none of {', '.join(p.name for p in Priority)}"
    if count <= 0 or gpu < 0 or cpu < 0 or memory < 0:
        return f"asks for {task.node_count} nodes with {task.gpu} gpus, {task.cpu} cpus, {task.memory} GB"
    since, restart = task.waiting_since or 0.0, task.restart_seconds or 0.0
    times = task.created_at + task.not_before + task.custom_rank + task.run_seconds
    if not isfinite(times + since + restart):
        return "custom_rank or a time is not a finite number"
    if task.assigned_nodes and len(set(task.assigned_nodes)) != task.node_count:
        return f"asks for {format_count(count, 'node')} but names {', '.join(task.assigned_nodes)}"
    return ""


def deferral(task: SchedTask, now: float) -> Verdict | None:
    """Why a task may not start yet: on hold, waiting for other tasks to end, or not before a time. None: it may."""
    if task.held:
        return WaitReason.HELD, "held by its user; resume it to put it back in the queue"
    if task.awaited:
        return WaitReason.AFTER, f"waits for task {format_list(task.awaited)} to end"
    if task.not_before > now:
        return WaitReason.BACKING_OFF, f"may not start before {format_utc(task.not_before)}"
    return None


class Admission:
    """The tasks that are refused, each with a reason to wait or an order to stop."""

    def __init__(self) -> None:
        self.inactive_users: frozenset[str] = frozenset()
        self.refused: dict[int, Wait] = {}
        self.stops: dict[int, Stop] = {}

    def competes(self, task: SchedTask) -> bool:
        """Whether a queued task may be offered nodes."""
        if self.refused:
            self.refused.pop(task.id, None)
        if wrong := fault(task):
            self.refuse(task.id, wrong)
            return False
        return not (self.inactive_users or self.stops) or not self.stopped(task)

    def refuse(self, number: int, wrong: str) -> None:
        """Refuse a task for what is wrong with it."""
        self.refused[number] = Wait(number, WaitReason.INVALID, wrong)

    def stopped(self, task: SchedTask) -> bool:
        """Whether a task must stop, because its user is not active."""
        stops = task.user in self.inactive_users
        if stops:
            self.stops[task.id] = Stop(task.id, f"user {task.user} is not active")
        elif self.stops:
            self.stops.pop(task.id, None)
        return stops

    def remove(self, number: int) -> None:
        """The task has ended."""
        self.refused.pop(number, None)
        self.stops.pop(number, None)


class Feasibility:
    """Whether the nodes of a group can meet a request at all, and whether those that are usable now can."""

    def __init__(self, group: str, exists: bool, nodes: Mapping[str, Node], pool: Pool) -> None:
        self._group, self._exists, self._nodes, self._pool = group, exists, nodes, pool
        self._verdicts: dict[Request, Verdict | None] = {}
        self._max_ranks: dict[Request, int] = {}
        self._classes = _count_classes(nodes.values())

    def usable_changed(self) -> None:
        """Judge all requests anew: a node became usable or unusable."""
        self._verdicts.clear()

    def verdict(self, request: Request) -> Verdict | None:
        """Why the request cannot be met even on an empty group; None when it can."""
        if request not in self._verdicts:
            self._verdicts[request] = self._judge(request)
        return self._verdicts[request]

    def _judge(self, request: Request) -> Verdict | None:
        if not self._exists:
            return WaitReason.NO_SUCH_GROUP, f"there is no node group {self._group!r}"
        where = f"group {self._group}{'#' + request.zone if request.zone else ''}"
        missing = [name for name in request.node_names if name not in self._nodes]
        if missing:
            return WaitReason.NO_SUCH_NODE, f"{where} has no node {', '.join(missing)}"
        most = self._ranks_in_group(request)
        if most < request.count:
            return (
                WaitReason.GROUP_TOO_SMALL,
                f"needs {request}; {where} has room for {most}",
            )
        usable = self._pool.usable(request)
        if usable < request.count:
            text = f"needs {request}; {usable} of {most} in {where} are ready and not cordoned"
            return WaitReason.NODES_UNUSABLE, text
        return None

    def _ranks_in_group(self, request: Request) -> int:
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
    """How many nodes there are of each zone and size."""
    return Counter((node.zone, size_of(node)) for node in nodes)
