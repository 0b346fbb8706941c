"""Room out of pieces: small runs move to where they fit as things are, so that a larger task fits.

Small tasks come and go, and what they leave free lies in pieces on many nodes. When nobody may be suspended for the
first task that lacks nodes, runs of its level or below that have had their slice may move: that costs as little as
taking turns does, and they start again at once. Only in groups that share nodes, where slices are on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hai_backend.scheduler.capacity.resources import Amount, covers, minus, plus
from hai_backend.scheduler.capacity.slots import Grip, Holder, Slot
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.cost import loss
from hai_backend.scheduler.preemption.eligibility import spared
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.queue.rating import Guard, slice_seconds

_TRIED = 64  # nodes that are looked at for one rank


def movers(group: GroupState, waiting: Waiting, already: int, now: float) -> list[Holder]:
    """Who moves so that all ranks fit and not only `already`; none: it can not be done, or nobody looked far enough."""
    clearing = _Clearing(group, waiting, now)
    for spot in _emptiest(group, waiting):
        already += clearing.clear(spot)
        if already >= waiting.need.count:
            return clearing.movers
    return []


def _emptiest(group: GroupState, waiting: Waiting) -> list[Slot]:
    open_ones = (spot for shelf in group.pool.open.values() for spot in shelf)
    held = (s for s in open_ones if s.grip is Grip.HELD and group.pool.suits(s, waiting.need))
    return sorted(held, key=lambda s: (-s.free[0], len(s.holders), s.name))[:_TRIED]


class _Clearing:
    """Which nodes are cleared for the task, and what is left of the others once their runs have come."""

    def __init__(self, group: GroupState, waiting: Waiting, now: float) -> None:
        self.movers: list[Holder] = []
        self._group = group
        self._waiting = waiting
        self._now = now
        self._cleared: set[Slot] = set()
        self._left: dict[Slot, Amount] = {}

    def clear(self, spot: Slot) -> bool:
        """Make room for one rank on this node, if all who are in the way can move."""
        if spot in self._left:  # somebody has moved here
            return False
        before = dict(self._left)
        self._cleared.add(spot)
        found = self._moving(spot)
        if found is None:
            self._left = before
            self._cleared.discard(spot)
            return False
        self.movers += found
        return True

    def _moving(self, spot: Slot) -> list[Holder] | None:
        wanted = spot.kind.size if self._waiting.need.whole else self._waiting.need.ask
        room, found = spot.soon, list[Holder]()
        for holder in self._in_the_way(spot):
            if covers(room, wanted):
                break
            if not self._may_move(holder) or not self._seat(holder):
                return None
            found.append(holder)
            room = plus(room, spot.taken_by(holder))
        return found if covers(room, wanted) else None

    def _in_the_way(self, spot: Slot) -> list[Holder]:
        """Who loses least first."""
        held = (holder for holder in spot.holders if holder.grip is Grip.HELD)
        policy, now = self._group.policy, self._now
        return sorted(held, key=lambda h: (loss(h.task, policy, now), h.task.id))

    def _may_move(self, holder: Holder) -> bool:
        worth, task, policy = holder.worth, holder.task, self._group.policy
        if worth is None or worth.level > self._waiting.level:
            return False
        if holder.ask is None or len(holder.spots) != 1:  # whole nodes are no pieces
            return False
        began = self._now if task.run_started_at is None else task.run_started_at
        had = self._now - began >= slice_seconds(task, policy) and worth.guard is Guard.NONE
        return had and spared(self._waiting, holder, policy, self._now) is Verdict.LINE

    def _seat(self, holder: Holder) -> bool:
        """Reserve what it takes on the fullest node that has room."""
        need = self._group.needs.of(holder.task)
        for spot in self._fullest(need.ask[0]):
            free = self._left.get(spot, spot.free)
            if covers(free, need.ask) and self._group.pool.suits(spot, need):
                self._left[spot] = minus(free, need.ask)
                return True
        return False

    def _fullest(self, gpus: int) -> Iterator[Slot]:
        shelves = self._group.pool.open
        for free in sorted(free for free in shelves if free >= gpus):
            for spot in islice(shelves[free], _TRIED):
                if spot not in self._cleared:
                    yield spot
