"""What each group could ever hold: counted once for each change of the nodes, asked at every submission."""

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

_REMEMBERED = 1000  # shapes of requests


class GroupCapacity:
    """The nodes of one group, as a submission sees them."""

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
        self._rooms: dict[tuple[str, Resources | None], int] = {}

    def ask(self, resource: ResourceSpec) -> Resources | None:
        """What a rank takes of a node; None: all of it."""
        return requested_resources(resource.gpu, resource.cpu, resource.memory, packed=self.packed)

    def units(self, resource: ResourceSpec, ranks: int) -> int:
        """What so many ranks weigh against quotas and shares."""
        return units_of(ranks, self.ask(resource), self.largest)

    def room(self, zone: str, ask: Resources | None) -> int:
        """How many ranks fit when nobody else is there; `ask` None: each takes a whole node."""
        known = self._rooms.get((zone, ask))
        if known is None:
            if len(self._rooms) > _REMEMBERED:
                self._rooms.clear()
            known = self._rooms[zone, ask] = sum(
                _ranks(node, ask) for node in self.nodes.values() if zone in ("", node.zone)
            )
        return known


def _ranks(node: Node, ask: Resources | None) -> int:
    if ask is None:
        return 1
    size = size_of(node)
    return ranks_in(size, ask) if covers(size, ask) else 0


class Capacity:
    """Remembers the answer until a node changes; whoever changes a group calls `forget`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: Mapping[str, GroupCapacity] = {}
        self._version = -1

    def groups(self) -> Mapping[str, GroupCapacity]:
        """By name."""
        version = self._cluster.feed.version
        if version != self._version:
            self._groups, self._version = self._count(), version
        return self._groups

    def forget(self) -> None:
        """Count again at the next question."""
        self._version = -1

    def _count(self) -> dict[str, GroupCapacity]:
        members: dict[str, list[Node]] = {}
        for node in self._cluster.nodes().values():
            members.setdefault(node.group, []).append(node)
        groups = self._cluster.groups()
        return {
            g.name: GroupCapacity(g.name, g.packed, members.get(g.name, ()), g)
            for g in groups.values()
        }
