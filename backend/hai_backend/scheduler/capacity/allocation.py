"""Who comes to a node and who leaves it. What its kind counts, and where it stands in it, follows."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from hai_backend.scheduler.capacity.resources import Amount, covers, minus, plus
from hai_backend.scheduler.capacity.slots import SEVERAL, Grip, Holder, Slot

_NAME = attrgetter("name")


def put(spot: Slot, holder: Holder) -> None:
    """Count one rank of a task on a node."""
    if spot.kind.packed:
        _shelve(spot, minus(spot.free, spot.taken_by(holder)))
        if holder.grip is not Grip.LEAVING:
            _free_soon(spot, minus(spot.soon, spot.taken_by(holder)))
    spot.kind.shared = spot.kind.shared or bool(spot.holders)
    spot.holders.append(holder)
    holder.spots.append(spot)
    regrip(spot)


def remove(holder: Holder) -> None:
    """Everything of a task is gone."""
    for spot in holder.spots:
        if spot.kind.packed:
            _shelve(spot, plus(spot.free, spot.taken_by(holder)))
            if holder.grip is not Grip.LEAVING:
                _free_soon(spot, plus(spot.soon, spot.taken_by(holder)))
        spot.holders.remove(holder)
        regrip(spot)
    holder.spots.clear()


def leave(holder: Holder, wanted_by: int) -> None:
    """Count a run as one that leaves for `wanted_by`."""
    holder.grip, holder.wanted_by = Grip.LEAVING, wanted_by
    for spot in holder.spots:
        _free_soon(spot, plus(spot.soon, spot.taken_by(holder)))
        regrip(spot)


def stay(holder: Holder) -> None:
    """Undo `leave`."""
    holder.grip, holder.wanted_by = Grip.HELD, 0
    for spot in holder.spots:
        _free_soon(spot, minus(spot.soon, spot.taken_by(holder)))
        regrip(spot)


def _shelve(spot: Slot, free: Amount) -> None:
    shelves = spot.kind.open
    shelves.get(spot.free[0], {}).pop(spot, None)
    recount(spot.kind.free, spot.free, -1)
    recount(spot.kind.free, free, 1)
    spot.free = free
    if covers(free, (0, 0, 0)) and free != spot.kind.size:
        shelves.setdefault(free[0], {})[spot] = None


def _free_soon(spot: Slot, soon: Amount) -> None:
    recount(spot.kind.soon, spot.soon, -1)
    recount(spot.kind.soon, soon, 1)
    spot.soon = soon


def recount(rooms: dict[Amount, int], room: Amount, change: int) -> None:
    """So many nodes more have this room; negative: fewer."""
    number = rooms.get(room, 0) + change
    if number:
        rooms[room] = number
    else:
        del rooms[room]


def regrip(spot: Slot) -> None:
    """Count a node in its kind as its holders are now."""
    grip, claim = _firmest(spot.holders)
    if (grip, claim) != (spot.grip, spot.claim):
        forget(spot)
        spot.grip, spot.claim = grip, claim
        count(spot)


def _firmest(holders: list[Holder]) -> tuple[Grip, int]:
    if not holders:
        return Grip.EMPTY, 0
    if len(holders) == 1:
        (one,) = holders
        return one.grip, 0 if one.grip is Grip.HELD else one.wanted_by
    grip = max(holder.grip for holder in holders)
    if grip is Grip.HELD:
        return grip, 0
    claims = {holder.wanted_by for holder in holders}
    return grip, claims.pop() if len(claims) == 1 else SEVERAL


def count(spot: Slot) -> None:
    """Take a node into its kind's counts."""
    kind = spot.kind
    if spot.grip is Grip.EMPTY:
        kind.empty += 1
        insort(kind.empties.setdefault(spot.place, []), spot, key=_NAME)
    elif spot.grip is Grip.LEAVING:
        kind.leaving += 1
        insort(kind.leavings.setdefault(spot.claim, []), spot, key=_NAME)


def forget(spot: Slot) -> None:
    """Take a node out of its kind's counts."""
    kind = spot.kind
    if spot.grip is Grip.EMPTY:
        kind.empty -= 1
        _take_out(spot, kind.empties[spot.place])
    elif spot.grip is Grip.LEAVING:
        kind.leaving -= 1
        _take_out(spot, kind.leavings[spot.claim])


def _take_out(spot: Slot, row: list[Slot]) -> None:
    del row[bisect_left(row, spot.name, key=_NAME)]
