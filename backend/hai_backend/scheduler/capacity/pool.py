"""The usable nodes of one group, with indexes by size and by free GPUs. A pool lives for many passes.

A pass only adds allocations (starts, promises) and begins releases, so a request that did not fit does not fit later in
the same pass. The pass undoes both before the group changes.
"""

from __future__ import annotations

from hai_backend.domain.node import Node
from hai_backend.scheduler.capacity.node_info import (
    NodeClass,
    NodeInfo,
    Occupancy,
    change_count,
)
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.capacity.resources import Resources, covers, ranks_in, size_of


class Pool:
    """The usable nodes of one group."""

    def __init__(self, packed: bool) -> None:
        self.packed = packed
        self.nodes: dict[str, NodeInfo] = {}
        self.node_classes: dict[tuple[str, Resources], NodeClass] = {}
        self.partly_free: dict[int, dict[NodeInfo, None]] = {}  # by free GPUs
        self._classes_for: dict[tuple[str, Resources], tuple[NodeClass, ...]] = {}

    def add(self, node: Node) -> NodeInfo:
        """Add a usable node that has no allocations."""
        size = size_of(node)
        node_class = self.node_classes.get((node.zone, size))
        if node_class is None:
            node_class = self.node_classes[node.zone, size] = NodeClass(
                node.zone, size, self.packed, self.partly_free
            )
            self._classes_for.clear()
        info = self.nodes[node.name] = NodeInfo(node.name, node_class, node.topology, size, size)
        node_class.nodes[info] = None
        change_count(node_class.free, size, 1)
        change_count(node_class.future_free, size, 1)
        info.count()
        return info

    def remove(self, name: str) -> NodeInfo:
        """Remove a node from the pool and from the allocations on it."""
        node = self.nodes.pop(name)
        for allocation in list(node.allocations):
            allocation.nodes = [other for other in allocation.nodes if other is not node]
        self.partly_free.get(node.free[0], {}).pop(node, None)
        node.uncount()
        change_count(node.node_class.free, node.free, -1)
        change_count(node.node_class.future_free, node.future_free, -1)
        del node.node_class.nodes[node]
        return node

    @property
    def shared(self) -> bool:
        """Whether a node may have more than one task."""
        return self.packed or any(node_class.shared for node_class in self.node_classes.values())

    def classes_for(self, request: Request) -> tuple[NodeClass, ...]:
        """Return the classes of nodes that suit a request, the smallest size first."""
        key = (request.zone, request.resources)
        found = self._classes_for.get(key)
        if found is None:
            suits = [
                node_class
                for node_class in self.node_classes.values()
                if request.zone in ("", node_class.zone)
                and covers(node_class.size, request.resources)
            ]
            found = self._classes_for[key] = tuple(
                sorted(suits, key=lambda node_class: (node_class.size, node_class.zone))
            )
        return found

    def suits(self, node: NodeInfo, request: Request) -> bool:
        """Return whether a rank of the request may run on this node when the node is empty."""
        return (
            not request.node_names or node.name in request.node_names
        ) and node.node_class in self.classes_for(request)

    def nodes_for(self, request: Request) -> list[NodeInfo]:
        """Return the nodes that the ranks of a request may use when the nodes are empty."""
        if request.node_names:
            named = (self.nodes[name] for name in request.node_names if name in self.nodes)
            return [node for node in named if node.node_class in self.classes_for(request)]
        return [node for node_class in self.classes_for(request) for node in node_class.nodes]

    def usable(self, request: Request) -> int:
        """Return how many ranks of a request fit on the usable nodes of the group when the nodes are empty."""
        if request.node_names:
            return len(self.nodes_for(request))
        return sum(
            len(node_class.nodes)
            * (1 if request.whole_nodes else ranks_in(node_class.size, request.resources))
            for node_class in self.classes_for(request)
        )

    def count(self, request: Request, occupancy: Occupancy) -> int:
        """Return how many suitable nodes have at most this occupancy. With ALLOCATED, all suitable nodes count."""
        if request.node_names:
            return sum(node.occupancy <= occupancy for node in self.nodes_for(request))
        return sum(_count(node_class, occupancy) for node_class in self.classes_for(request))


def _count(node_class: NodeClass, occupancy: Occupancy) -> int:
    if occupancy is Occupancy.ALLOCATED:
        return len(node_class.nodes)
    return node_class.empty + (node_class.releasing if occupancy is Occupancy.RELEASING else 0)
