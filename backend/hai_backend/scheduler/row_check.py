"""May this row take part at all? A bad one gets its Wait here and changes nothing for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isfinite

from hai_backend.domain.formatting import counted, listed, utc
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.resources import Amount, covers, ranks_in, size_of
from hai_backend.scheduler.capacity.slots import Need

Verdict = tuple[WaitReason, str]
"""Why a task waits, and the sentence for its user."""


def fault(task: SchedTask) -> str:
    """What is wrong with a waiting row; empty when nothing is."""
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
        return f"asks for {counted(count, 'node')} but names {', '.join(task.assigned_nodes)}"
    return ""


def not_yet(task: SchedTask, now: float) -> Verdict | None:
    """Held by its user, put off by its user, waiting for others to end, or backing off after a failure."""
    if task.held:
        return WaitReason.HELD, "held by its user; resume it to put it back in the queue"
    if task.awaited:
        return WaitReason.AFTER, f"waits for task {listed(task.awaited)} to end"
    if task.not_before > now:
        return WaitReason.BACKING_OFF, f"may not start before {utc(task.not_before)}"
    return None


class Feasibility:
    """Could a need ever be met by the nodes of a group, and by those that are usable today?"""

    def __init__(self, group: str, exists: bool, nodes: Mapping[str, Node], pool: Pool) -> None:
        self._group, self._exists, self._nodes, self._pool = group, exists, nodes, pool
        self._known: dict[Need, Verdict | None] = {}
        self._rooms: dict[Need, int] = {}
        self._kinds = _kinds(nodes.values())

    def usable_changed(self) -> None:
        """Judge anew: some node may be used again, or not for now."""
        self._known.clear()

    def verdict(self, need: Need) -> Verdict | None:
        """Why the need can not be met even with nobody else there; None when it can."""
        if need not in self._known:
            self._known[need] = self._judge(need)
        return self._known[need]

    def _judge(self, need: Need) -> Verdict | None:
        if not self._exists:
            return WaitReason.NO_SUCH_GROUP, f"there is no node group {self._group!r}"
        where = f"group {self._group}{'#' + need.zone if need.zone else ''}"
        missing = [name for name in need.only if name not in self._nodes]
        if missing:
            return WaitReason.NO_SUCH_NODE, f"{where} has no node {', '.join(missing)}"
        most = self._most(need)
        if most < need.count:
            return WaitReason.GROUP_TOO_SMALL, f"needs {wanted(need)}; {where} has room for {most}"
        usable = self._pool.usable(need)
        if usable < need.count:
            text = f"needs {wanted(need)}; {usable} of {most} in {where} are ready and not cordoned"
            return WaitReason.NODES_UNUSABLE, text
        return None

    def _most(self, need: Need) -> int:
        if need not in self._rooms:
            named = (self._nodes[name] for name in need.only)
            kinds = _kinds(named) if need.only else self._kinds
            ranks = (number * self._ranks(*kind, need) for kind, number in kinds.items())
            self._rooms[need] = sum(ranks)
        return self._rooms[need]

    @staticmethod
    def _ranks(zone: str, size: Amount, need: Need) -> int:
        if need.zone not in ("", zone) or not covers(size, need.ask):
            return 0
        return 1 if need.whole or need.only else ranks_in(size, need.ask)


def _kinds(nodes: Iterable[Node]) -> Counter[tuple[str, Amount]]:
    """How many nodes there are of each zone and size."""
    return Counter((node.zone, size_of(node)) for node in nodes)


def wanted(need: Need) -> str:
    """A need in words: `4 nodes`, `2 x (1 gpu, 4 cpus)`."""
    gpus, cpus, memory = need.ask
    parts = [(gpus, "gpu"), (cpus, "cpu"), (memory >> 30, "GB")]
    ask = ", ".join(f"{n} {word}{'s' if n > 1 and word != 'GB' else ''}" for n, word in parts if n)
    nodes = counted(need.count, "node")
    if need.whole:
        return f"{nodes} with {ask} each" if ask else nodes
    return f"{need.count} x ({ask})"
