"""Computes the load of each node group, once a minute, for the usage over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hai_backend.controllers.scheduling.binder import gpus_of
from hai_backend.domain.node import Group, Node
from hai_backend.domain.task import Rank, Task, holders
from hai_backend.domain.usage import GroupLoad, Load, Use
from hai_backend.launch.base import RankKey


@dataclass(slots=True)
class _Sum:
    """The load of one node group, while it is summed up."""

    packed: bool
    nodes: int = 0
    busy_nodes: int = 0
    gpus: int = 0
    booked_gpus: int = 0
    waiting_tasks: int = 0
    gpus_measured: int = 0
    gpu_utilisation: float = 0.0

    def load(self) -> Load:
        return Load(
            1,
            self.nodes,
            self.busy_nodes,
            self.gpus,
            self.booked_gpus,
            self.waiting_tasks,
            self.gpus_measured,
            self.gpu_utilisation,
        )


def loads(
    minute: int,
    nodes: Mapping[str, Node],
    groups: Mapping[str, Group],
    tasks: Iterable[Task],
    used: Callable[[RankKey], Use | None],
) -> list[GroupLoad]:
    """Return the current load of each node group.

    `used` returns what a rank used in the minute that has just ended, or None if nothing was measured.
    """
    sums = {group.name: _Sum(group.packed) for group in groups.values()}
    for node in nodes.values():
        sums[node.group].nodes += 1
        sums[node.group].gpus += node.gpus
    _count_ranks(sums, nodes, tasks, used)
    for task in tasks:
        if task.needs_nodes and task.spec.resource.group in sums:
            sums[task.spec.resource.group].waiting_tasks += 1
    return [GroupLoad(name, minute, total.load()) for name, total in sums.items()]


def _count_ranks(
    sums: Mapping[str, _Sum],
    nodes: Mapping[str, Node],
    tasks: Iterable[Task],
    used: Callable[[RankKey], Use | None],
) -> None:
    busy: set[str] = set()
    for task, run, rank in holders(tasks):
        node = nodes.get(rank.node)
        if node is None:
            continue
        total = sums[node.group]
        held = _held(task, rank, node, packed=total.packed)
        total.booked_gpus += held
        total.busy_nodes += node.name not in busy
        busy.add(node.name)
        use = used(RankKey(task.id, run.number, rank.index))
        if use is not None and use.gpu_beats:
            total.gpus_measured += held
            total.gpu_utilisation += held * use.gpu_utilisation / use.gpu_beats


def _held(task: Task, rank: Rank, node: Node, *, packed: bool) -> int:
    """Return how many GPUs a rank occupies. In groups that are not packed, these are all GPUs of the node."""
    return len(gpus_of(task, rank, node)) if packed else node.gpus
