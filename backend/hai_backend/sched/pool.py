"""The usable nodes of one group during a pass: who is on each, and how many of them could be had.

A pass only ever takes room away (starts, promises) or turns runs into leaving ones, so whatever did not fit once will
not fit later in the same pass. Everything counted here is kept up to date by `Pool.put` and `Pool.leave`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority

Amount = tuple[int, int, int]
"""GPUs, cpus, bytes of memory."""

GB = 1 << 30

UNLIMITED = 10**18
"""Stands for cpus or memory that a node does not declare: they limit nobody."""

# What stands in `Holder.level` and `Spot.top` beside the levels 0..50, in the same order of firmness.
EMPTY = -3
LEAVING = -2
FIXED = 99


@dataclass(slots=True, eq=False)
class Holder:
    """A task on its nodes. Its level is the effective one; LEAVING: asked to go; FIXED: to be left alone."""

    task: int
    level: int
    user: str = ""
    asked: Priority = Priority.AUTO
    run_level: Priority = Priority.AUTO
    loss: float = 0.0  # node-seconds that a suspension would cost
    ask: Amount | None = None  # of each rank; None: whole nodes
    wanted_by: int = 0  # LEAVING: the task that it leaves for
    spots: list[Spot] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Kind:
    """Nodes of one zone and size: equal to every task that names no node."""

    zone: str
    size: Amount
    tops: dict[int, int] = field(default_factory=dict)  # how many nodes have which `top`
    empties: dict[tuple[str, ...], list[Spot]] = field(default_factory=dict)  # by topology
    leaving: dict[Spot, None] = field(default_factory=dict)
    spots: list[Spot] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Spot:
    """A usable node. `top` is the firmest level among its holders."""

    name: str
    kind: Kind
    place: tuple[str, ...]
    free: Amount  # now
    soon: Amount  # once everybody who leaves has left
    holders: list[Holder] = field(default_factory=list)
    top: int = EMPTY

    def taken_by(self, holder: Holder) -> Amount:
        """What one rank of a holder takes of this node."""
        return self.kind.size if holder.ask is None else holder.ask


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What a task asks for of each node. Equal tasks of a group share one value, so identity tells needs apart."""

    count: int
    whole: bool = True
    ask: Amount = (0, 0, 0)
    zone: str = ""
    only: tuple[str, ...] = ()
    units: int = 0  # what it weighs against a quota (quota.UNIT a node)


def size_of(node: Node) -> Amount:
    """What a node has; what it does not declare limits nobody, except GPUs."""
    return (node.gpus, node.cpus or UNLIMITED, node.memory_bytes or UNLIMITED)


def ask_of(gpu: int, cpu: int, memory_gb: int, *, packed: bool) -> Amount | None:
    """What a rank takes of a node; None: all of it."""
    if not packed or not (gpu or cpu or memory_gb):
        return None
    return (max(0, gpu), max(0, cpu), max(0, memory_gb) * GB)


def covers(have: Amount, ask: Amount) -> bool:
    """True when `ask` fits into `have`."""
    return have[0] >= ask[0] and have[1] >= ask[1] and have[2] >= ask[2]


def minus(have: Amount, ask: Amount) -> Amount:
    """What is left of `have` when `ask` is taken."""
    return (have[0] - ask[0], have[1] - ask[1], have[2] - ask[2])


def plus(have: Amount, back: Amount) -> Amount:
    """What is there when `back` is given back."""
    return (have[0] + back[0], have[1] + back[1], have[2] + back[2])


class Pool:
    """The nodes of one group that may take tasks."""

    def __init__(self, nodes: Iterable[Node], on: Mapping[str, list[Holder]], packed: bool) -> None:
        self.packed = packed
        self.spots: dict[str, Spot] = {}
        self.kinds: dict[tuple[str, Amount], Kind] = {}
        self.open: dict[int, dict[Spot, None]] = {}  # shared nodes by free GPUs
        self.shared = packed  # some node may have more than one holder
        self._kinds_for: dict[tuple[str, Amount], tuple[Kind, ...]] = {}
        for node in sorted(nodes, key=lambda node: node.name, reverse=True):
            self._add(node, on.get(node.name, ()))

    def _add(self, node: Node, holders: Iterable[Holder]) -> None:
        size = size_of(node)
        kind = self.kinds.setdefault((node.zone, size), Kind(node.zone, size))
        spot = Spot(node.name, kind, node.topology, size, size)
        self.spots[node.name] = spot
        kind.spots.append(spot)
        kind.tops[EMPTY] = kind.tops.get(EMPTY, 0) + 1
        kind.empties.setdefault(spot.place, []).append(spot)  # names descend: pop() takes the first
        for holder in holders:
            self.put(spot, holder)

    def put(self, spot: Spot, holder: Holder) -> None:
        """Count one rank of a task on a node."""
        if self.packed:
            self._shelve(spot, minus(spot.free, spot.taken_by(holder)))
            if holder.level != LEAVING:
                spot.soon = minus(spot.soon, spot.taken_by(holder))
        self.shared = self.shared or bool(spot.holders)
        spot.holders.append(holder)
        holder.spots.append(spot)
        self._settle(spot, max(spot.top, holder.level))

    def leave(self, holder: Holder, wanted_by: int) -> None:
        """Count a running task as one that leaves for `wanted_by`."""
        holder.level, holder.wanted_by = LEAVING, wanted_by
        for spot in holder.spots:
            spot.soon = plus(spot.soon, spot.taken_by(holder))
            self._settle(spot, max(other.level for other in spot.holders))

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

    def suits(self, spot: Spot, need: Need) -> bool:
        """True when a rank may run on this node, were it empty."""
        return (not need.only or spot.name in need.only) and spot.kind in self.kinds_for(need)

    def spots_for(self, need: Need) -> list[Spot]:
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

    def count(self, need: Need, top: int) -> int:
        """How many suitable nodes have nobody firmer than `top` on them."""
        if need.only:
            return sum(spot.top <= top for spot in self.spots_for(need))
        return sum(
            number
            for kind in self.kinds_for(need)
            for level, number in kind.tops.items()
            if level <= top
        )

    def _shelve(self, spot: Spot, free: Amount) -> None:
        self.open.get(spot.free[0], {}).pop(spot, None)
        spot.free = free
        if free[0] >= 0 and free[1] > 0 and free[2] > 0:
            self.open.setdefault(free[0], {})[spot] = None

    def _settle(self, spot: Spot, top: int) -> None:
        if top == spot.top:
            return
        kind, old = spot.kind, spot.top
        kind.tops[old] -= 1
        kind.tops[top] = kind.tops.get(top, 0) + 1
        spot.top = top
        if old == EMPTY:
            _discard(kind.empties[spot.place], spot)
        kind.leaving.pop(spot, None)
        if top == LEAVING:
            kind.leaving[spot] = None


def ranks_in(have: Amount, ask: Amount) -> int:
    """How many ranks that ask for a part of a node fit into what is there."""
    gpus, cpus, memory = ask
    most = have[0] // gpus if gpus else UNLIMITED
    if cpus:
        most = min(most, have[1] // cpus)
    if memory:
        most = min(most, have[2] // memory)
    return max(0, most)


def _discard(spots: list[Spot], spot: Spot) -> None:
    if spots[-1] is spot:
        spots.pop()
    else:
        spots.remove(spot)
