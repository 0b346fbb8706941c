"""Does it fit, and where: on empty nodes now (`seat`), or on nodes that others are about to leave (`promise`).

Whole-node tasks take empty nodes as topology.py says. In packed groups a task that asks for a part of a node joins
others where it leaves the smallest hole (best fit: GPUs, cpus, memory), and opens an empty node only when it must.
All ranks of a gang are equal, so a gang fits exactly when the nodes together have room for its number of ranks.
"""

from __future__ import annotations

from collections.abc import Container

from hai_backend.sched import topology
from hai_backend.sched.pool import (
    EMPTY,
    LEAVING,
    Amount,
    Holder,
    Need,
    Pool,
    Spot,
    covers,
    plus,
    ranks_in,
)


def seat(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...] | None:
    """Put the whole gang on nodes that are free now, or nothing."""
    if need.only:
        return _seat_named(pool, need, holder)
    if need.whole:
        return _seat_whole(pool, need, holder)
    if need.count > 1 and within(pool, need, EMPTY) < need.count:
        return None
    return _seat_parts(pool, need, holder)


def promise(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...]:
    """Put the gang on nodes that are free or being left, free ones first; `within` has said that they suffice."""
    if need.only:
        return _put(pool, pool.spots_for(need), holder)
    return _promise_whole(pool, need, holder) if need.whole else _promise_parts(pool, need, holder)


def within(pool: Pool, need: Need, top: int) -> int:
    """How many ranks would fit, were everybody up to `top` gone."""
    if need.whole:
        return pool.count(need, top)
    return sum(slots(spot, need, top) for spot in pool.spots_for(need))


def slots(spot: Spot, need: Need, top: int, gone: Container[Holder] = ()) -> int:
    """How many ranks fit on a node once everybody up to `top`, and who is in `gone`, has left it."""
    if need.whole:
        return int(all(holder.level <= top or holder in gone for holder in spot.holders))
    ranks = ranks_in(_room(spot, top, gone), need.ask)
    return min(1, ranks) if need.only else ranks


def _room(spot: Spot, top: int, gone: Container[Holder]) -> Amount:
    if top == EMPTY:
        return spot.free
    room = spot.soon
    for holder in spot.holders:
        if holder.level > LEAVING and (holder.level <= top or holder in gone):
            room = plus(room, spot.taken_by(holder))
    return room


def _seat_named(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...] | None:
    spots = [spot for spot in pool.spots_for(need) if slots(spot, need, EMPTY)]
    return _put(pool, spots, holder) if len(spots) == need.count else None


def _seat_whole(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...] | None:
    if pool.count(need, EMPTY) < need.count:
        return None
    return _put(pool, _empties(pool, need, need.count), holder)


def _put(pool: Pool, spots: list[Spot], holder: Holder) -> tuple[Spot, ...]:
    for spot in spots:
        pool.put(spot, holder)
    return tuple(spots)


def _empties(pool: Pool, need: Need, count: int) -> list[Spot]:
    kinds = pool.kinds_for(need)
    empty: dict[topology.Place, int] = {}
    for kind in kinds:
        for place, spots in kind.empties.items():
            if spots:
                empty[place] = empty.get(place, 0) + len(spots)
    chosen: list[Spot] = []
    for place, take in topology.spread(empty, count) if count else ():
        at_place = [
            spot for kind in kinds for spot in kind.empties.get(place, ())[: -take - 1 : -1]
        ]
        chosen += at_place[:take]
    return chosen


def _seat_parts(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...] | None:
    chosen: list[Spot] = []
    for _ in range(need.count):
        spot = _best_shared(pool, need) or _smallest_empty(pool, need)
        if spot is None:
            return (
                None  # only when the first rank finds no room: `seat` has counted for all of them
            )
        pool.put(spot, holder)
        chosen.append(spot)
    return tuple(chosen)


def _best_shared(pool: Pool, need: Need) -> Spot | None:
    for gpus in sorted(gpus for gpus in pool.open if gpus >= need.ask[0]):
        fitting = [s for s in pool.open[gpus] if covers(s.free, need.ask) and pool.suits(s, need)]
        if fitting:
            return min(fitting, key=lambda spot: (spot.free, spot.name))
    return None


def _smallest_empty(pool: Pool, need: Need) -> Spot | None:
    return next(iter(_empties(pool, need, min(1, pool.count(need, EMPTY)))), None)


def _promise_whole(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...]:
    free = _empties(pool, need, min(need.count, pool.count(need, EMPTY)))
    leaving = [spot for kind in pool.kinds_for(need) for spot in kind.leaving]
    leaving.sort(key=lambda spot: (_claim(spot, holder.task), spot.name))
    return _put(pool, free + leaving[: need.count - len(free)], holder)


def _claim(spot: Spot, task: int) -> int:
    """0: left for this task, 1: for nobody, 2: for another, which may need just this node."""
    wanted = {holder.wanted_by for holder in spot.holders}
    return 0 if task in wanted else 1 if wanted <= {0} else 2


def _promise_parts(pool: Pool, need: Need, holder: Holder) -> tuple[Spot, ...]:
    left = {spot: slots(spot, need, LEAVING) for spot in pool.spots_for(need)}
    chosen: list[Spot] = []

    def badness(spot: Spot) -> tuple[bool, int, Amount, str]:
        later = not covers(spot.free, need.ask)
        return (later, _claim(spot, holder.task), spot.free, spot.name)

    for _ in range(need.count):
        best = min((spot for spot, ranks in left.items() if ranks), key=badness)
        pool.put(best, holder)
        left[best] -= 1
        chosen.append(best)
    return tuple(chosen)
