"""Does it fit, and where: on empty nodes now (`seat`), or on nodes that others are about to leave (`promise`).

Whole-node tasks take empty nodes as capacity/topology.py says. In packed groups a task that asks for a part of a
node joins
others where it leaves the smallest hole (best fit: GPUs, cpus, memory), and opens an empty node only when it must; a
dev container goes where the fewest others are.
All ranks of a gang are equal, so a gang fits exactly when the nodes together have room for its number of ranks.
"""

from __future__ import annotations

from collections.abc import Container

from hai_backend.scheduler.capacity import topology
from hai_backend.scheduler.capacity.allocation import put
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.resources import Amount, covers, plus, ranks_among, ranks_in
from hai_backend.scheduler.capacity.slots import Grip, Holder, Need, Slot


def seat(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...] | None:
    """Put the whole gang on nodes that are free now, or nothing."""
    if need.only:
        return _seat_named(pool, need, holder)
    if need.whole:
        return _seat_whole(pool, need, holder)
    if need.count > 1 and within(pool, need, Grip.EMPTY) < need.count:
        return None
    return _seat_parts(pool, need, holder)


def promise(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...]:
    """Put the gang on nodes that are free or being left, free ones first; `within` has said that they suffice."""
    if need.only:
        return _put(pool.spots_for(need), holder)
    return _promise_whole(pool, need, holder) if need.whole else _promise_parts(pool, need, holder)


def within(pool: Pool, need: Need, grip: Grip) -> int:
    """How many ranks fit now (EMPTY), or once everybody who leaves has left (LEAVING)."""
    if need.whole:
        return pool.count(need, grip)
    if need.only:
        return sum(slots(spot, need, grip) for spot in pool.spots_for(need))
    kinds = pool.kinds_for(need)
    rooms = (kind.free if grip is Grip.EMPTY else kind.soon for kind in kinds)
    return sum(ranks_among(each, need.ask) for each in rooms)


def slots(spot: Slot, need: Need, grip: Grip, gone: Container[Holder] = ()) -> int:
    """How many ranks fit on a node once everybody up to `grip`, and who is in `gone`, has left it."""
    if need.whole:
        return int(all(holder.grip <= grip or holder in gone for holder in spot.holders))
    ranks = ranks_in(_room(spot, grip, gone), need.ask)
    return min(1, ranks) if need.only else ranks


def _room(spot: Slot, grip: Grip, gone: Container[Holder]) -> Amount:
    if grip is Grip.EMPTY:
        return spot.free
    room = spot.soon
    for holder in spot.holders:
        if holder in gone and holder.grip is Grip.HELD:
            room = plus(room, spot.taken_by(holder))
    return room


def _seat_named(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...] | None:
    spots = [spot for spot in pool.spots_for(need) if slots(spot, need, Grip.EMPTY)]
    return _put(spots, holder) if len(spots) == need.count else None


def _seat_whole(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...] | None:
    if pool.count(need, Grip.EMPTY) < need.count:
        return None
    return _put(_empties(pool, need, need.count), holder)


def _put(spots: list[Slot], holder: Holder) -> tuple[Slot, ...]:
    for spot in spots:
        put(spot, holder)
    return tuple(spots)


def _empties(pool: Pool, need: Need, count: int) -> list[Slot]:
    kinds = pool.kinds_for(need)
    empty: dict[topology.Place, int] = {}
    for kind in kinds:
        for place, spots in kind.empties.items():
            if spots:
                empty[place] = empty.get(place, 0) + len(spots)
    chosen: list[Slot] = []
    for place, take in topology.spread(empty, count) if count else ():
        at_place = [spot for kind in kinds for spot in kind.empties.get(place, [])[:take]]
        chosen += at_place[:take]
    return chosen


def _seat_parts(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...] | None:
    chosen: list[Slot] = []
    for _ in range(need.count):
        spot = _least_loaded(pool, need) if need.spread else _fullest(pool, need)
        if spot is None:
            # Only when the first rank finds no room: `seat` has counted for all of them
            return None
        put(spot, holder)
        chosen.append(spot)
    return tuple(chosen)


def _least_loaded(pool: Pool, need: Need) -> Slot | None:
    """Dev containers, whose users feel their neighbours."""
    fitting = (spot for spot in pool.spots_for(need) if covers(spot.free, need.ask))
    return min(fitting, key=lambda spot: _hole(spot, need), default=None)


def _hole(spot: Slot, need: Need) -> tuple[object, ...]:
    """Smallest where the task should go."""
    loads = (len(spot.holders), *(-amount for amount in spot.free)) if need.spread else spot.free
    return (*loads, spot.name)


def _fullest(pool: Pool, need: Need) -> Slot | None:
    return _best_shared(pool, need) or _smallest_empty(pool, need)


def _best_shared(pool: Pool, need: Need) -> Slot | None:
    for gpus in sorted(gpus for gpus in pool.open if gpus >= need.ask[0]):
        fitting = [s for s in pool.open[gpus] if covers(s.free, need.ask) and pool.suits(s, need)]
        if fitting:
            return min(fitting, key=lambda spot: _hole(spot, need))
    return None


def _smallest_empty(pool: Pool, need: Need) -> Slot | None:
    return next(iter(_empties(pool, need, min(1, pool.count(need, Grip.EMPTY)))), None)


def _promise_whole(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...]:
    free = _empties(pool, need, min(need.count, pool.count(need, Grip.EMPTY)))
    return _put(free + _left_for(pool, need, holder.task.id, need.count - len(free)), holder)


def _left_for(pool: Pool, need: Need, task: int, count: int) -> list[Slot]:
    """Nodes that are being left: for this task, then for nobody, then for others, who may need just these."""
    kinds = pool.kinds_for(need)
    chosen = [
        spot for claim in (task, 0) for kind in kinds for spot in kind.leavings.get(claim, ())
    ]
    if len(chosen) < count:
        others = (
            spot
            for kind in kinds
            for claim, spots in kind.leavings.items()
            if claim not in (task, 0)
            for spot in spots
        )
        chosen += sorted(others, key=lambda spot: spot.name)
    return chosen[:count]


def _promise_parts(pool: Pool, need: Need, holder: Holder) -> tuple[Slot, ...]:
    left = {spot: slots(spot, need, Grip.LEAVING) for spot in pool.spots_for(need)}
    chosen: list[Slot] = []

    def badness(spot: Slot) -> tuple[bool, int, tuple[object, ...]]:
        later = not covers(spot.free, need.ask)
        claim = (holder.task.id, 0).index(spot.claim) if spot.claim in (holder.task.id, 0) else 2
        return (later, claim, _hole(spot, need))

    for _ in range(need.count):
        best = min((spot for spot, ranks in left.items() if ranks), key=badness)
        put(best, holder)
        left[best] -= 1
        chosen.append(best)
    return tuple(chosen)
