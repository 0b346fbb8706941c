"""Nodes as a pass sees them: what each has free, the allocations on it, and its class of equal nodes.

An allocation is added to a node once for each rank. Each change of a node is counted in its class at once, so that the
number of empty nodes of a class is known without a search.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.resources import Resources, covers, minus, plus
from hai_backend.scheduler.queue.precedence import Precedence

SEVERAL = -1
"""Stands for the ids of several tasks, in `NodeInfo.reserved_for`."""

_NAME = attrgetter("name")


class Occupancy(IntEnum):
    """The state of an allocation. The occupancy of a node is the highest of its allocations."""

    EMPTY = 0
    RELEASING = 1  # the task was asked to leave
    ALLOCATED = 2


@dataclass(slots=True, eq=False)
class Allocation:
    """A task and its nodes.

    A task without a precedence is being started or has an invalid row, and must not be suspended.
    """

    task: SchedTask
    occupancy: Occupancy
    precedence: Precedence | None = None
    resources: Resources | None = None  # of each rank; None for whole nodes
    units: int = 0  # of quota that the task uses
    reserved_for: int = 0  # if RELEASING: the task that gets the nodes, 0 if there is none
    nodes: list[NodeInfo] = field(default_factory=list)

    def add(self, node: NodeInfo) -> None:
        """Allocate a node, or a part of it, to one more rank."""
        if node.node_class.packed:
            node.set_free(minus(node.free, node.used_by(self)))
            if self.occupancy is not Occupancy.RELEASING:
                node.set_future_free(minus(node.future_free, node.used_by(self)))
        node.node_class.shared = node.node_class.shared or bool(node.allocations)
        node.allocations.append(self)
        self.nodes.append(node)
        node.update_occupancy()

    def clear(self) -> None:
        """Free all nodes after the task has left them."""
        for node in self.nodes:
            if node.node_class.packed:
                node.set_free(plus(node.free, node.used_by(self)))
                if self.occupancy is not Occupancy.RELEASING:
                    node.set_future_free(plus(node.future_free, node.used_by(self)))
            node.allocations.remove(self)
            node.update_occupancy()
        self.nodes.clear()

    def begin_release(self, reserved_for: int) -> None:
        """Mark the nodes as releasing: the task was asked to leave so that task `reserved_for` can start."""
        self.occupancy, self.reserved_for = Occupancy.RELEASING, reserved_for
        for node in self.nodes:
            node.set_future_free(plus(node.future_free, node.used_by(self)))
            node.update_occupancy()

    def undo_release(self) -> None:
        """Undo `begin_release`."""
        self.occupancy, self.reserved_for = Occupancy.ALLOCATED, 0
        for node in self.nodes:
            node.set_future_free(minus(node.future_free, node.used_by(self)))
            node.update_occupancy()


@dataclass(slots=True, eq=False)
class NodeClass:
    """Nodes of one zone and size, which are equal to every task that names no node."""

    zone: str
    size: Resources
    packed: bool
    partly_free: dict[int, dict[NodeInfo, None]]  # the index of the pool
    shared: bool = False  # whether some node has or had more than one task
    empty: int = 0
    empty_nodes: dict[tuple[str, ...], list[NodeInfo]] = field(default_factory=dict)  # by topology
    releasing: int = 0
    releasing_nodes: dict[int, list[NodeInfo]] = field(default_factory=dict)  # by `reserved_for`
    nodes: dict[NodeInfo, None] = field(default_factory=dict)
    free: dict[Resources, int] = field(default_factory=dict)  # number of nodes by free resources
    future_free: dict[Resources, int] = field(default_factory=dict)  # the same after all releases


@dataclass(slots=True, eq=False)
class NodeInfo:
    """A usable node. `occupancy` is the highest occupancy of the tasks on it."""

    name: str
    node_class: NodeClass
    topology: tuple[str, ...]
    free: Resources  # now
    future_free: Resources  # after all tasks that were asked to leave have left
    allocations: list[Allocation] = field(default_factory=list)
    occupancy: Occupancy = Occupancy.EMPTY
    reserved_for: int = 0  # if RELEASING: the task that gets the node, 0 if none does, or SEVERAL

    def used_by(self, allocation: Allocation) -> Resources:
        """Return what one rank of a task uses of this node."""
        return self.node_class.size if allocation.resources is None else allocation.resources

    def set_free(self, free: Resources) -> None:
        """Change what is free, and the place of the node in the index of partly free nodes."""
        partly_free = self.node_class.partly_free
        partly_free.get(self.free[0], {}).pop(self, None)
        change_count(self.node_class.free, self.free, -1)
        change_count(self.node_class.free, free, 1)
        self.free = free
        if covers(free, (0, 0, 0)) and free != self.node_class.size:
            partly_free.setdefault(free[0], {})[self] = None

    def set_future_free(self, free: Resources) -> None:
        """Change what will be free after all releases."""
        change_count(self.node_class.future_free, self.future_free, -1)
        change_count(self.node_class.future_free, free, 1)
        self.future_free = free

    def update_occupancy(self) -> None:
        """Compute the occupancy from the allocations, and count the node in its class accordingly."""
        occupancy, reserved_for = self._highest_occupancy()
        if (occupancy, reserved_for) != (self.occupancy, self.reserved_for):
            self.uncount()
            self.occupancy, self.reserved_for = occupancy, reserved_for
            self.count()

    def _highest_occupancy(self) -> tuple[Occupancy, int]:
        """Return the highest occupancy of the allocations, and the task for which the node is reserved."""
        if not self.allocations:
            return Occupancy.EMPTY, 0
        if len(self.allocations) == 1:
            (one,) = self.allocations
            allocated = one.occupancy is Occupancy.ALLOCATED
            return one.occupancy, 0 if allocated else one.reserved_for
        occupancy = max(allocation.occupancy for allocation in self.allocations)
        if occupancy is Occupancy.ALLOCATED:
            return occupancy, 0
        tasks = {allocation.reserved_for for allocation in self.allocations}
        return occupancy, tasks.pop() if len(tasks) == 1 else SEVERAL

    def count(self) -> None:
        """Add the node to the counts of empty and releasing nodes of its class."""
        in_class = self.node_class
        if self.occupancy is Occupancy.EMPTY:
            in_class.empty += 1
            insort(in_class.empty_nodes.setdefault(self.topology, []), self, key=_NAME)
        elif self.occupancy is Occupancy.RELEASING:
            in_class.releasing += 1
            insort(in_class.releasing_nodes.setdefault(self.reserved_for, []), self, key=_NAME)

    def uncount(self) -> None:
        """Remove the node from the counts of empty and releasing nodes of its class."""
        in_class = self.node_class
        if self.occupancy is Occupancy.EMPTY:
            in_class.empty -= 1
            self._delete_from(in_class.empty_nodes[self.topology])
        elif self.occupancy is Occupancy.RELEASING:
            in_class.releasing -= 1
            self._delete_from(in_class.releasing_nodes[self.reserved_for])

    def _delete_from(self, nodes: list[NodeInfo]) -> None:
        del nodes[bisect_left(nodes, self.name, key=_NAME)]


def change_count(counts: dict[Resources, int], free: Resources, change: int) -> None:
    """Add `change`, which may be negative, to the number of nodes with this much free. A count of zero is deleted."""
    number = counts.get(free, 0) + change
    if number:
        counts[free] = number
    else:
        del counts[free]
