"""The usable nodes of one group: who is on each, and how many of them could be had.

Kept from pass to pass; `put` and `remove` follow the runs. A pass only ever takes room away (starts, promises) or turns
runs into leaving ones, so whatever did not fit once will not fit later in the same pass; afterwards it undoes both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter

from hai_backend.domain.node import Node
from hai_backend.domain.snapshot import SchedTask
from hai_backend.sched.appraise import Worth

Amount = tuple[int, int, int]
"""GPUs, cpus, bytes of memory."""

GB = 1 << 30

_NAME = attrgetter("name")

SEVERAL = -1

UNLIMITED = 10**18
"""Stands for cpus or memory that a node does not declare: they limit nobody."""


class Grip(IntEnum):
    """How firmly a task, or a node's firmest holder, keeps a node."""

    EMPTY = 0
    LEAVING = 1  # asked to go
    HELD = 2


@dataclass(slots=True, eq=False)
class Holder:
    """A task on its nodes. Without a worth it is to be left alone: it is being started, or its row is bad."""

    task: SchedTask
    grip: Grip
    worth: Worth | None = None
    ask: Amount | None = None  # of each rank; None: whole nodes
    units: int = 0  # what all of it weighs against a quota
    wanted_by: int = 0  # LEAVING: the task that it leaves for
    spots: list[Spot] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Kind:
    """Nodes of one zone and size: equal to every task that names no node."""

    zone: str
    size: Amount
    packed: bool
    open: dict[int, dict[Spot, None]]  # of the pool
    shared: bool = False  # some node has or had more than one holder
    empty: int = 0
    empties: dict[tuple[str, ...], list[Spot]] = field(default_factory=dict)  # by topology and name
    leaving: int = 0
    leavings: dict[int, list[Spot]] = field(default_factory=dict)  # by claim and name
    spots: dict[Spot, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Spot:
    """A usable node. `grip` is that of its firmest holder."""

    name: str
    kind: Kind
    place: tuple[str, ...]
    free: Amount  # now
    soon: Amount  # once everybody who leaves has left
    holders: list[Holder] = field(default_factory=list)
    grip: Grip = Grip.EMPTY
    claim: int = 0  # while it is being left: the task that it is left for; 0: nobody; SEVERAL

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
    spread: bool = False  # to the least loaded nodes; else to the fullest that have room


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

    def __init__(self, packed: bool) -> None:
        self.packed = packed
        self.spots: dict[str, Spot] = {}
        self.kinds: dict[tuple[str, Amount], Kind] = {}
        self.open: dict[int, dict[Spot, None]] = {}  # partly taken nodes by free GPUs
        self._kinds_for: dict[tuple[str, Amount], tuple[Kind, ...]] = {}

    def add(self, node: Node) -> Spot:
        """Open a node, with nobody on it."""
        size = size_of(node)
        kind = self.kinds.get((node.zone, size))
        if kind is None:
            kind = self.kinds[node.zone, size] = Kind(node.zone, size, self.packed, self.open)
            self._kinds_for.clear()
        spot = self.spots[node.name] = Spot(node.name, kind, node.topology, size, size)
        kind.spots[spot] = None
        _regrip(spot)
        return spot

    def close(self, name: str) -> Spot:
        """Take a node away, with everybody on it."""
        spot = self.spots.pop(name)
        for holder in list(spot.holders):
            holder.spots = [other for other in holder.spots if other is not spot]
        self.open.get(spot.free[0], {}).pop(spot, None)
        _forget(spot)
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

    def count(self, need: Need, grip: Grip) -> int:
        """How many suitable nodes nobody keeps more firmly than `grip`: EMPTY or LEAVING."""
        if need.only:
            return sum(spot.grip <= grip for spot in self.spots_for(need))
        return sum(
            kind.empty + (kind.leaving if grip is Grip.LEAVING else 0)
            for kind in self.kinds_for(need)
        )


def put(spot: Spot, holder: Holder) -> None:
    """Count one rank of a task on a node."""
    if spot.kind.packed:
        _shelve(spot, minus(spot.free, spot.taken_by(holder)))
        if holder.grip is not Grip.LEAVING:
            spot.soon = minus(spot.soon, spot.taken_by(holder))
    spot.kind.shared = spot.kind.shared or bool(spot.holders)
    spot.holders.append(holder)
    holder.spots.append(spot)
    _regrip(spot)


def remove(holder: Holder) -> None:
    """Everything of a task is gone."""
    for spot in holder.spots:
        if spot.kind.packed:
            _shelve(spot, plus(spot.free, spot.taken_by(holder)))
            if holder.grip is not Grip.LEAVING:
                spot.soon = plus(spot.soon, spot.taken_by(holder))
        spot.holders.remove(holder)
        _regrip(spot)
    holder.spots.clear()


def leave(holder: Holder, wanted_by: int) -> None:
    """Count a run as one that leaves for `wanted_by`."""
    holder.grip, holder.wanted_by = Grip.LEAVING, wanted_by
    for spot in holder.spots:
        spot.soon = plus(spot.soon, spot.taken_by(holder))
        _regrip(spot)


def stay(holder: Holder) -> None:
    """Undo `leave`."""
    holder.grip, holder.wanted_by = Grip.HELD, 0
    for spot in holder.spots:
        spot.soon = minus(spot.soon, spot.taken_by(holder))
        _regrip(spot)


def _shelve(spot: Spot, free: Amount) -> None:
    shelves = spot.kind.open
    shelves.get(spot.free[0], {}).pop(spot, None)
    spot.free = free
    if covers(free, (0, 0, 0)) and free != spot.kind.size:
        shelves.setdefault(free[0], {})[spot] = None


def _regrip(spot: Spot) -> None:
    _forget(spot)
    spot.grip = max((holder.grip for holder in spot.holders), default=Grip.EMPTY)
    spot.claim = 0
    kind = spot.kind
    if spot.grip is Grip.EMPTY:
        kind.empty += 1
        insort(kind.empties.setdefault(spot.place, []), spot, key=_NAME)
    elif spot.grip is Grip.LEAVING:
        kind.leaving += 1
        claims = {holder.wanted_by for holder in spot.holders}
        spot.claim = claims.pop() if len(claims) == 1 else SEVERAL
        insort(kind.leavings.setdefault(spot.claim, []), spot, key=_NAME)


def _forget(spot: Spot) -> None:
    """Take a node out of its kind's counts; nothing happens to one that is in none."""
    kind = spot.kind
    if _taken_out(spot, kind.empties.get(spot.place, [])):
        kind.empty -= 1
    elif _taken_out(spot, kind.leavings.get(spot.claim, [])):
        kind.leaving -= 1


def _taken_out(spot: Spot, row: list[Spot]) -> bool:
    at = bisect_left(row, spot.name, key=_NAME)
    found = at < len(row) and row[at] is spot
    if found:
        del row[at]
    return found


def ranks_in(have: Amount, ask: Amount) -> int:
    """How many ranks that ask for a part of a node fit into what is there."""
    gpus, cpus, memory = ask
    most = have[0] // gpus if gpus else UNLIMITED
    if cpus:
        most = min(most, have[1] // cpus)
    if memory:
        most = min(most, have[2] // memory)
    return max(0, most)
