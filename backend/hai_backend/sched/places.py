"""Who comes to a node and who leaves it. What its kind counts, and where it stands in it, follows."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from hai_backend.sched.amounts import Amount, covers, minus, plus
from hai_backend.sched.spots import SEVERAL, Grip, Holder, Spot

_NAME = attrgetter("name")


def put(spot: Spot, holder: Holder) -> None:
    """Count one rank of a task on a node."""
    if spot.kind.packed:
        _shelve(spot, minus(spot.free, spot.taken_by(holder)))
        if holder.grip is not Grip.LEAVING:
            spot.soon = minus(spot.soon, spot.taken_by(holder))
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
                spot.soon = plus(spot.soon, spot.taken_by(holder))
        spot.holders.remove(holder)
        regrip(spot)
    holder.spots.clear()


def leave(holder: Holder, wanted_by: int) -> None:
    """Count a run as one that leaves for `wanted_by`."""
    holder.grip, holder.wanted_by = Grip.LEAVING, wanted_by
    for spot in holder.spots:
        spot.soon = plus(spot.soon, spot.taken_by(holder))
        regrip(spot)


def stay(holder: Holder) -> None:
    """Undo `leave`."""
    holder.grip, holder.wanted_by = Grip.HELD, 0
    for spot in holder.spots:
        spot.soon = minus(spot.soon, spot.taken_by(holder))
        regrip(spot)


def _shelve(spot: Spot, free: Amount) -> None:
    shelves = spot.kind.open
    shelves.get(spot.free[0], {}).pop(spot, None)
    spot.free = free
    if covers(free, (0, 0, 0)) and free != spot.kind.size:
        shelves.setdefault(free[0], {})[spot] = None


def regrip(spot: Spot) -> None:
    """Count a node in its kind again, as its holders are now."""
    forget(spot)
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


def forget(spot: Spot) -> None:
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
