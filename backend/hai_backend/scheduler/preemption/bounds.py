"""At most so much room there could be: whom that refuses need not look for victims.

In groups that share nodes that look is long, and a queue of many sizes would make it for each of them in each pass, in
vain. In a pass room is only lost, and who comes later ranks no higher: what once did not suffice does not for them.
"""

from __future__ import annotations

from hai_backend.scheduler.capacity.allocation import recount
from hai_backend.scheduler.capacity.resources import Amount, plus, ranks_among
from hai_backend.scheduler.capacity.slots import Grip, Holder, Kind, Need, Slot
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.victim_index import worth_of
from hai_backend.scheduler.queue.queue import Waiting


class CapacityBound:
    """The room, were everybody gone who may be asked to leave for this task, its user's own runs among them."""

    def __init__(self, group: GroupState, waiting: Waiting, now: float) -> None:
        self._all_equals = bool(group.shares) or group.wishes.reordered
        self._top = (waiting.level, waiting.merit)
        self._pool = group.pool
        self._rooms = {kind: dict(kind.soon) for kind in group.pool.kinds.values()}
        self._clear = {kind: kind.empty + kind.leaving for kind in self._rooms}
        self._vacate(_takeable(group, waiting, now, self._all_equals))

    def _vacate(self, gone: set[Holder]) -> None:
        freed: dict[Slot, Amount] = {}
        for holder in gone:
            for spot in (spot for spot in holder.spots if spot.kind in self._rooms):
                freed[spot] = plus(freed.get(spot, spot.soon), spot.taken_by(holder))
        for spot, room in freed.items():
            recount(self._rooms[spot.kind], spot.soon, -1)
            recount(self._rooms[spot.kind], room, 1)
            self._clear[spot.kind] += all(h in gone or h.grip is Grip.LEAVING for h in spot.holders)

    def refuses(self, waiting: Waiting) -> bool:
        """True when it, and whoever needs the same and comes later in the pass, would find too little room."""
        level, merit = self._top
        known = waiting.level < level or (
            waiting.level == level and (self._all_equals or waiting.merit <= merit)
        )
        return known and not waiting.need.only and self._ranks(waiting.need) < waiting.need.count

    def _ranks(self, need: Need) -> int:
        return sum(self._ranks_on(kind, need) for kind in self._pool.kinds_for(need))

    def _ranks_on(self, kind: Kind, need: Need) -> int:
        return self._clear[kind] if need.whole else ranks_among(self._rooms[kind], need.ask)


def _takeable(group: GroupState, waiting: Waiting, now: float, all_equals: bool) -> set[Holder]:
    """By levels, ranks and protection alone."""
    policy, gone = group.policy, set[Holder]()
    for level, step in group.victim_index.below(waiting, all_equals):
        equals = level == waiting.level
        if equals and not policy.time_slices and not group.shares:
            continue
        urgent = not equals and waiting.level >= policy.urgent
        gone.update(h for h in step if urgent or worth_of(h).guard_ends[equals] <= now)
    return gone
