"""Binds the runs of one plan to nodes: checks again that they fit, and chooses their GPUs.

Tasks change while a plan is computed, so the plan may be outdated. Resources are counted as in the scheduler
(scheduler.capacity.resources). Each Binder is used for one plan, and counts all runs that it accepts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hai_backend.domain.node import Group, Node
from hai_backend.domain.task import Rank, Task, holders
from hai_backend.scheduler.capacity.resources import (
    Resources,
    covers,
    minus,
    requested_resources,
    size_of,
)

Gpus = tuple[int, ...]


def gpus_of(task: Task, rank: Rank, node: Node | None) -> Gpus:
    """Return the indices of a rank's GPUs within its node.

    A rank that was placed before the indices were stored uses the first GPUs of the node.
    """
    resource = task.spec.resource
    if rank.gpus or (not resource.gpu and (resource.cpu or resource.memory)):
        return rank.gpus
    return tuple(range(resource.gpu or (node.gpus if node else 0)))


@dataclass(frozen=True, slots=True)
class FreeResources:
    """The free resources of a node."""

    resources: Resources
    gpus: Gpus  # in ascending order

    def without(self, amount: Resources, gpus: Collection[int]) -> FreeResources:
        """Return what remains free after this amount and these GPUs are allocated."""
        return FreeResources(
            minus(self.resources, amount), tuple(i for i in self.gpus if i not in gpus)
        )


class Occupants:
    """The tasks on each node, updated with each change."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._names: dict[int, frozenset[str]] = {}  # the nodes of each task
        self._on: dict[str, set[int]] = {}

    def update(self, task: Task) -> None:
        """Record a new or changed task."""
        before, names = self._names.pop(task.id, frozenset()), _nodes_of(task)
        self._tasks.pop(task.id, None)
        if names:
            self._tasks[task.id], self._names[task.id] = task, names
        for name in before - names:
            self._on[name].discard(task.id)
        for name in names - before:
            self._on.setdefault(name, set()).add(task.id)

    def on(self, names: Iterable[str]) -> list[Task]:
        """Return the tasks on these nodes, ordered by id."""
        ids = {task for name in names for task in self._on.get(name, ())}
        return [self._tasks[task] for task in sorted(ids)]


def _nodes_of(task: Task) -> frozenset[str]:
    return frozenset(rank.node for _, _, rank in holders([task]))


class Binder:
    """Allocates runs on the nodes that a plan uses."""

    def __init__(
        self, node_names: Collection[str], nodes: Mapping[str, Node], groups: Mapping[str, Group]
    ) -> None:
        usable = {name: nodes[name] for name in node_names if name in nodes and nodes[name].usable}
        self._nodes = usable
        self._groups = groups
        self._free = {
            n.name: FreeResources(size_of(n), tuple(range(n.gpus))) for n in usable.values()
        }

    def add_existing(self, tasks: Iterable[Task]) -> None:
        """Count the resources of tasks that are already on the nodes."""
        for task, _, rank in holders(tasks):
            node = self._nodes.get(rank.node)
            if node is not None:
                used = gpus_of(task, rank, node)
                self._free[node.name] = self._free[node.name].without(self._part(task, node), used)

    def allocate(self, task: Task, names: tuple[str, ...]) -> tuple[Gpus, ...] | None:
        """Allocate a run. Return the GPUs of each rank, or None if the run no longer fits.

        Each rank gets the free GPUs with the lowest indices.
        """
        remaining, chosen = dict[str, FreeResources](), []
        for name in names:
            node = self._nodes.get(name)
            if node is None:
                return None
            free, part = remaining.get(name, self._free[name]), self._part(task, node)
            gpus = self._choose(task, node, free)
            if gpus is None or not covers(free.resources, part):
                return None
            remaining[name] = free.without(part, gpus)
            chosen.append(gpus)
        self._free.update(remaining)
        return tuple(chosen)

    def _choose(self, task: Task, node: Node, free: FreeResources) -> Gpus | None:
        needed = task.spec.resource.gpu
        count = needed if self._requested(task) else max(needed, node.gpus)
        return free.gpus[:count] if len(free.gpus) >= count else None

    def _part(self, task: Task, node: Node) -> Resources:
        return self._requested(task) or size_of(node)

    def _requested(self, task: Task) -> Resources | None:
        resource = task.spec.resource
        packed = self._groups.get(resource.group, Group(resource.group)).packed
        return requested_resources(resource.gpu, resource.cpu, resource.memory, packed=packed)
