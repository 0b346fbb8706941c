"""Computes how many ranks each group can hold when it is empty. Every submission needs this, so it is cached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.api.protocols import Cluster
from hai_backend.domain.node import Group, Node
from hai_backend.domain.spec import ResourceSpec
from hai_backend.scheduler.capacity.requests import units_of
from hai_backend.scheduler.capacity.resources import (
    Resources,
    covers,
    ranks_in,
    requested_resources,
    size_of,
)

_MAX_CACHED = 1000  # shapes of requests


class GroupCapacity:
    """The nodes of one group, and how many ranks fit on them."""

    def __init__(
        self, name: str, packed: bool, nodes: Iterable[Node], settings: Group | None = None
    ) -> None:
        self.name = name
        self.packed = packed
        self.settings = settings or Group(name, packed)
        self.nodes = {node.name: node for node in nodes}
        self.zones = frozenset(node.zone for node in self.nodes.values() if node.zone)
        sizes = [size_of(node) for node in self.nodes.values()]
        self.largest: Resources = (
            max((size[0] for size in sizes), default=0),
            max((size[1] for size in sizes), default=0),
            max((size[2] for size in sizes), default=0),
        )
        self._rank_counts: dict[tuple[str, Resources | None, int], int] = {}

    def rank_resources(self, resource: ResourceSpec) -> Resources | None:
        """Return what a rank takes of a node, or None if it takes a whole node."""
        return requested_resources(resource.gpu, resource.cpu, resource.memory, packed=self.packed)

    def units(self, resource: ResourceSpec, ranks: int) -> int:
        """Return how many units so many ranks take of quotas and shares."""
        return units_of(ranks, self.rank_resources(resource), self.largest)

    def count_ranks(self, resource: ResourceSpec) -> int:
        """Return how many ranks fit into the empty zone of a task, or into the whole group if it names no zone."""
        zone, gpus, rank_resources = resource.zone, resource.gpu, self.rank_resources(resource)
        key = zone, rank_resources, gpus
        count = self._rank_counts.get(key)
        if count is None:
            if len(self._rank_counts) > _MAX_CACHED:
                self._rank_counts.clear()
            count = self._rank_counts[key] = sum(
                _count_ranks_of_node(node, rank_resources)
                for node in self.nodes.values()
                if zone in ("", node.zone) and node.gpus >= gpus
            )
        return count


def _count_ranks_of_node(node: Node, rank_resources: Resources | None) -> int:
    if rank_resources is None:
        return 1
    size = size_of(node)
    return ranks_in(size, rank_resources) if covers(size, rank_resources) else 0


class Capacity:
    """The capacity of all groups, cached until a node changes. A change of a group must call `invalidate`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: Mapping[str, GroupCapacity] = {}
        self._version = -1

    def groups(self) -> Mapping[str, GroupCapacity]:
        """Return the capacity of each group by name."""
        version = self._cluster.feed.version
        if version != self._version:
            self._groups, self._version = self._compute(), version
        return self._groups

    def invalidate(self) -> None:
        """Drop the cache."""
        self._version = -1

    def _compute(self) -> dict[str, GroupCapacity]:
        members: dict[str, list[Node]] = {}
        for node in self._cluster.nodes().values():
            members.setdefault(node.group, []).append(node)
        groups = self._cluster.groups()
        return {
            g.name: GroupCapacity(g.name, g.packed, members.get(g.name, ()), g)
            for g in groups.values()
        }
