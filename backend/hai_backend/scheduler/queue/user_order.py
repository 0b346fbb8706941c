"""What a user's own tasks have to do with one another: the levels that AUTO becomes, the order set by hand, and whose
turn it is when the user holds nothing.

All are computed for all waiting tasks of a user together, and only for users of whom something has changed. A user's
tasks of a level take that user's places in the queue, in the order that the user wants: nobody else gains or loses.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.queue.queue import Key, Waiting, natural_key
from hai_backend.scheduler.queue.rating import turn_at
from hai_backend.scheduler.quota import allows, auto_levels

if TYPE_CHECKING:
    from hai_backend.scheduler.group_state import GroupState


_KEY = attrgetter("key")


class UserOrder:
    """Of one group."""

    def __init__(self, group: GroupState) -> None:
        self._group = group
        self._ranks: dict[str, int] = {}  # how many ranks a user has set
        self._moved: set[str] = set()  # users whose tasks stand in one another's places
        self._turns: dict[str, Waiting] = {}  # the first task of a user who holds nothing
        self._touched: dict[str, None] = {}

    def level(self, task: SchedTask) -> Priority:
        """The level of a task that enters the queue; AUTO's may still change before the pass."""
        if task.priority is not Priority.AUTO:
            return task.priority
        return self._group.quotas.candidates(task.user)[-1]

    def touch_all(self) -> None:
        """What is feasible has changed."""
        self._touched.update(dict.fromkeys(self._group.queue.users()))

    def touch(self, user: str) -> None:
        """Something has changed that this user's tasks may depend on."""
        self._touched[user] = None

    def remember(self, task: SchedTask, number: int) -> None:
        """So many tasks like this one have entered the queue."""
        user = task.user
        self._touched[user] = None
        if task.custom_rank:
            self._ranks[user] = self._ranks.get(user, 0) + number

    def forget(self, waiting: Waiting) -> None:
        """A task has left the queue."""
        user = waiting.task.user
        self.touch(user)
        if waiting.task.custom_rank:
            self._ranks[user] -= 1
        if self._turns.get(user) is waiting:
            del self._turns[user]

    def fulfil(self, now: float) -> None:
        """Bring the levels and places of all touched users up to date."""
        for user in self._touched:
            if autos := self._group.queue.autos_of(user):
                self._resolve(user, autos, now)
            self._give_turn(user, now)
            if self._ranks.get(user) or user in self._moved:
                self._reorder([*chain.from_iterable(self._group.queue.lanes_of(user))])
                (self._moved.add if self._ranks.get(user) else self._moved.discard)(user)
        self._touched.clear()

    @property
    def reordered(self) -> bool:
        """Some tasks stand in places that their ranks did not give them."""
        return bool(self._moved)

    def has_turn(self, waiting: Waiting) -> bool:
        """It is the first task of a user who holds nothing."""
        return self._turns.get(waiting.task.user) is waiting

    def _give_turn(self, user: str, now: float) -> None:
        before = self._turns.pop(user, None)
        if before is not None and now >= turn_at(before.task, self._group.policy):
            self._group.rate(before, now)
        if self._group.quotas.holds(user):
            return
        first = next(filter(self._could_start, self._heads(user)), None)
        if first is not None:
            self._turns[user] = first
            self._await_turn(first, now)

    def _heads(self, user: str) -> list[Waiting]:
        """The first of each lane of a user, in order: where one can not start, nobody else of its lane can."""
        lanes = self._group.queue.lanes_of(user)
        if user in self._moved:
            return sorted((min(lane, key=natural_key) for lane in lanes), key=natural_key)
        return sorted((lane[0] for lane in lanes), key=_KEY)

    def _could_start(self, waiting: Waiting) -> bool:
        """Were nobody else there: a task that can not does not take its user's turn."""
        limits = self._group.quotas.limits(*waiting.account)
        feasible = self._group.feasible.verdict(waiting.need) is None
        return feasible and allows(limits, waiting.need.units)

    def _await_turn(self, waiting: Waiting, now: float) -> None:
        at = turn_at(waiting.task, self._group.policy)
        if now >= at:
            self._group.rate(waiting, now)
        else:
            self._group.alarms.set_once(at, waiting.task.id, now)

    def _resolve(self, user: str, autos: list[Waiting], now: float) -> None:
        possible = [w for w in autos if self._group.feasible.verdict(w.need) is None]
        known = dict(auto_levels(user, possible, self._group.quotas))
        lowest = self.level(autos[0].task)
        for waiting in autos:
            level = known.get(waiting, lowest)
            if level is not waiting.own_level:
                self._group.rate(waiting, now, level)

    def _reorder(self, tasks: Iterable[Waiting]) -> None:
        """Among those that could start: else a task that can not would keep a place for one submitted later."""
        levels: dict[Priority, list[Waiting]] = {}
        for waiting in tasks:
            if self._could_start(waiting):
                levels.setdefault(waiting.level, []).append(waiting)
            else:
                self._place(waiting, natural_key(waiting))
        for own in levels.values():
            natural = {waiting: natural_key(waiting) for waiting in own}
            order = sorted(own, key=natural.__getitem__)
            wished = sorted(order, key=lambda waiting: waiting.task.custom_rank)
            for waiting, place in zip(wished, order, strict=True):
                same = place is waiting
                self._place(waiting, natural[place] if same else (*natural[place], waiting.task.id))

    def _place(self, waiting: Waiting, key: Key) -> None:
        if waiting.key != key:
            self._group.queue.discard(waiting)
            waiting.key = key
            self._group.queue.add(waiting)
