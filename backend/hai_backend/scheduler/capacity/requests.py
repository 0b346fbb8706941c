"""What the tasks of one group request of its nodes, and how much quota they use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai_backend.domain.formatting import format_count
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.domain.spec import TaskType
from hai_backend.scheduler.capacity.resources import Resources, requested_resources, size_of

UNIT = 1_000_000
"""The units of quota that one whole node uses. Units are integers, so that sums are exact."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a task requests. Equal requests of a group are one object, so requests are compared by identity."""

    count: int  # of ranks; each needs a node or a part of one
    whole_nodes: bool = True
    # of each rank; if `whole_nodes`, what each node must have at least
    resources: Resources = (0, 0, 0)
    zone: str = ""
    node_names: tuple[str, ...] = ()  # only these nodes
    units: int = 0  # of quota
    spread: bool = False  # use the least loaded nodes, not the fullest nodes that have room

    def __str__(self) -> str:
        """`4 nodes`, `4 nodes with 8 gpus each`, `2 x (1 gpu, 4 cpus)`."""
        gpus, cpus, memory = self.resources
        parts = [(gpus, "gpu"), (cpus, "cpu"), (memory >> 30, "GB")]
        each = ", ".join(
            f"{n} {unit}{'s' if n > 1 and unit != 'GB' else ''}" for n, unit in parts if n
        )
        if self.whole_nodes:
            nodes = format_count(self.count, "node")
            each_has = " each" if self.count > 1 else ""
            return f"{nodes} with {each}{each_has}" if each else nodes
        return f"{self.count} x ({each})"


class Requests:
    """The requests of one group; equal requests are one object."""

    def __init__(self, packed: bool, nodes: Iterable[Node]) -> None:
        self._packed = packed
        self._requests: dict[object, Request] = {}
        sizes = zip((0, 0, 0), *map(size_of, nodes), strict=True)
        self.largest: Resources = tuple(map(max, sizes))

    def request_of(self, task: SchedTask) -> Request:
        """Return what the task requests."""
        resources = self.resources(task)
        spread = resources is not None and task.task_type is TaskType.JUPYTER
        needed = resources or (max(0, task.gpu), 0, 0)
        whole_nodes = resources is None
        key = (task.node_count, whole_nodes, needed, task.zone, task.assigned_nodes, spread)
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = Request(
                count=task.node_count,
                whole_nodes=whole_nodes,
                resources=needed,
                zone=task.zone,
                node_names=task.assigned_nodes,
                units=self.units(task.node_count, resources),
                spread=spread,
            )
        return found

    def resources(self, task: SchedTask) -> Resources | None:
        """Return what a rank uses of a node; None for a whole node."""
        return requested_resources(task.gpu, task.cpu, task.memory, packed=self._packed)

    def units(self, ranks: int, resources: Resources | None) -> int:
        """Return the units of quota that so many ranks use."""
        return units_of(ranks, resources, self.largest)


def units_of(ranks: int, resources: Resources | None, largest: Resources) -> int:
    """Return the units of quota that `ranks` ranks use; `resources` is None for whole nodes.

    For each resource, a part of a node is a fraction of the largest node. The largest of these fractions counts.
    """
    if resources is None:
        return ranks * UNIT
    parts = [r * UNIT // most for r, most in zip(resources, largest, strict=True) if most > 0]
    return ranks * min(UNIT, max([1, *parts]))
