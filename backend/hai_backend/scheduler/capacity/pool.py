"""The usable nodes of one group: who is on each, and how many of them could be had.

Kept from pass to pass; `put` and `remove` follow the runs. A pass only ever takes room away (starts, promises) or turns
runs into leaving ones, so whatever did not fit once will not fit later in the same pass; afterwards it undoes both.
"""

from __future__ import annotations

from hai_backend.domain.node import Node
from hai_backend.scheduler.capacity.allocation import count, forget, recount
from hai_backend.scheduler.capacity.resources import Amount, covers, ranks_in, size_of
from hai_backend.scheduler.capacity.slots import Grip, Kind, Need, Slot


class Pool:
    """The nodes of one group that may take tasks."""

    def __init__(self, packed: bool) -> None:
        self.packed = packed
        self.spots: dict[str, Slot] = {}
        self.kinds: dict[tuple[str, Amount], Kind] = {}
        self.open: dict[int, dict[Slot, None]] = {}  # partly taken nodes by free GPUs
        self._kinds_for: dict[tuple[str, Amount], tuple[Kind, ...]] = {}

    def add(self, node: Node) -> Slot:
        """Open a node, with nobody on it."""
        size = size_of(node)
        kind = self.kinds.get((node.zone, size))
        if kind is None:
            kind = self.kinds[node.zone, size] = Kind(node.zone, size, self.packed, self.open)
            self._kinds_for.clear()
        spot = self.spots[node.name] = Slot(node.name, kind, node.topology, size, size)
        kind.spots[spot] = None
        recount(kind.free, size, 1)
        recount(kind.soon, size, 1)
        count(spot)
        return spot

    def close(self, name: str) -> Slot:
        """Take a node away, with everybody on it."""
        spot = self.spots.pop(name)
        for holder in list(spot.holders):
            holder.spots = [other for other in holder.spots if other is not spot]
        self.open.get(spot.free[0], {}).pop(spot, None)
        forget(spot)
        recount(spot.kind.free, spot.free, -1)
        recount(spot.kind.soon, spot.soon, -1)
        del spot.kind.spots[spot]
        return spot

    @property
    def shared(self) -> bool:
        """True when a node may have more than one holder."""
        return self.packed or any(kind.shared for kind in self.kinds.values())

    def kinds_for(self, need: Need) -> tuple[Kind, ...]:
        """The kinds of nodes that suit a need, smallest first."""
        key = (need.zone, need.ask)
        found = self._kinds_for.get(key)
        if found is None:
            suits = [
                k
                for k in self.kinds.values()
                if need.zone in ("", k.zone) and covers(k.size, need.ask)
            ]
            found = self._kinds_for[key] = tuple(
                sorted(suits, key=lambda kind: (kind.size, kind.zone))
            )
        return found

    def suits(self, spot: Slot, need: Need) -> bool:
        """True when a rank may run on this node, were it empty."""
        return (not need.only or spot.name in need.only) and spot.kind in self.kinds_for(need)

    def spots_for(self, need: Need) -> list[Slot]:
        """The nodes that a need may use, were they empty."""
        if need.only:
            named = (self.spots[name] for name in need.only if name in self.spots)
            return [spot for spot in named if spot.kind in self.kinds_for(need)]
        return [spot for kind in self.kinds_for(need) for spot in kind.spots]

    def usable(self, need: Need) -> int:
        """How many ranks of a need fit on the group's usable nodes when nobody else is there."""
        if need.only:
            return len(self.spots_for(need))
        return sum(
            len(kind.spots) * (1 if need.whole else ranks_in(kind.size, need.ask))
            for kind in self.kinds_for(need)
        )

    def count(self, need: Need, grip: Grip) -> int:
        """How many suitable nodes nobody keeps more firmly than `grip`; HELD: all of them."""
        if need.only:
            return sum(spot.grip <= grip for spot in self.spots_for(need))
        return sum(_count(kind, grip) for kind in self.kinds_for(need))


def _count(kind: Kind, grip: Grip) -> int:
    if grip is Grip.HELD:
        return len(kind.spots)
    return kind.empty + (kind.leaving if grip is Grip.LEAVING else 0)
