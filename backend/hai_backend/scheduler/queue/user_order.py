"""The order among the tasks of one user: levels for AUTO, ranks that the user has set, and the turn of a user without
nodes.

All three are computed for all waiting tasks of a user together, and only for users of whom something has changed. A
user's tasks of a level share that user's positions in the queue, in the order that the user sets: for other users
nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.admission import Feasibility
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.precedence import turn_at
from hai_backend.scheduler.queue.queue import Key, Queue, Waiting, natural_key
from hai_backend.scheduler.quota import Limit, Quotas, allows
from hai_backend.scheduler.wakeups import Wakeups

_KEY = attrgetter("key")


class UserOrder:
    """The order of users' tasks in one group. `rate` rates a task anew, at another level if one is given."""

    def __init__(
        self,
        queue: Queue,
        quotas: Quotas,
        policy: Policy,
        feasible: Feasibility,
        wakeups: Wakeups,
        rate: Callable[..., None],
    ) -> None:
        self._queue = queue
        self._quotas = quotas
        self._policy = policy
        self._feasible = feasible
        self._wakeups = wakeups
        self._rate = rate
        self._ranks: dict[str, int] = {}  # how many ranks a user has set
        self._moved: set[str] = set()  # users whose tasks have exchanged positions
        self._turns: dict[str, Waiting] = {}  # the first task of a user without nodes
        self._touched: dict[str, None] = {}

    def level(self, task: SchedTask) -> Priority:
        """The level of a task that is added to the queue. That of AUTO may change before the pass."""
        if task.priority is not Priority.AUTO:
            return task.priority
        return self._quotas.candidates(task.user)[-1]

    def touch_all(self) -> None:
        """Update all users: what is feasible has changed."""
        self._touched.update(dict.fromkeys(self._queue.users()))

    def touch(self, user: str) -> None:
        """Update this user before the next pass."""
        self._touched[user] = None

    def add(self, task: SchedTask, number: int) -> None:
        """So many tasks like this one were added to the queue."""
        user = task.user
        self._touched[user] = None
        if task.custom_rank:
            self._ranks[user] = self._ranks.get(user, 0) + number

    def remove(self, waiting: Waiting) -> None:
        """A task was removed from the queue."""
        user = waiting.task.user
        self.touch(user)
        if waiting.task.custom_rank:
            self._ranks[user] -= 1
        if self._turns.get(user) is waiting:
            del self._turns[user]

    def update(self, now: float) -> None:
        """Set levels and positions of all touched users."""
        for user in self._touched:
            if autos := self._queue.autos_of(user):
                self._resolve(user, autos, now)
            self._give_turn(user, now)
            if self._ranks.get(user) or user in self._moved:
                self._reorder([*chain.from_iterable(self._queue.lanes_of(user))])
                (self._moved.add if self._ranks.get(user) else self._moved.discard)(user)
        self._touched.clear()

    @property
    def reordered(self) -> bool:
        """Some tasks have positions that their ratings did not give them."""
        return bool(self._moved)

    def has_turn(self, waiting: Waiting) -> bool:
        """It is the first task of a user without nodes."""
        return self._turns.get(waiting.task.user) is waiting

    def _give_turn(self, user: str, now: float) -> None:
        before = self._turns.pop(user, None)
        if before is not None and now >= turn_at(before.task, self._policy):
            self._rate(before, now)
        if self._quotas.uses_any(user):
            return
        first = next(filter(self._could_start, self._heads(user)), None)
        if first is not None:
            self._turns[user] = first
            self._await_turn(first, now)

    def _heads(self, user: str) -> list[Waiting]:
        """The first task of each lane of a user, in order: if it cannot start, no other task of its lane can."""
        lanes = self._queue.lanes_of(user)
        if user in self._moved:
            return sorted((min(lane, key=natural_key) for lane in lanes), key=natural_key)
        return sorted((lane[0] for lane in lanes), key=_KEY)

    def _could_start(self, waiting: Waiting) -> bool:
        """Whether it could start on an empty group. Otherwise it must not take its user's turn."""
        limits = self._quotas.limits(*waiting.account)
        feasible = self._feasible.verdict(waiting.request) is None
        return feasible and allows(limits, waiting.request.units)

    def _await_turn(self, waiting: Waiting, now: float) -> None:
        at = turn_at(waiting.task, self._policy)
        if now >= at:
            self._rate(waiting, now)
        else:
            self._wakeups.set_once(at, waiting.task.id, now)

    def _resolve(self, user: str, autos: list[Waiting], now: float) -> None:
        possible = [w for w in autos if self._feasible.verdict(w.request) is None]
        levels = dict(auto_levels(user, possible, self._quotas))
        lowest = self.level(autos[0].task)
        for waiting in autos:
            level = levels.get(waiting, lowest)
            if level is not waiting.quota_level:
                self._rate(waiting, now, level)

    def _reorder(self, tasks: Iterable[Waiting]) -> None:
        """Only tasks that could start exchange positions: another would pass its position to one submitted later."""
        levels: dict[Priority, list[Waiting]] = {}
        for waiting in tasks:
            if self._could_start(waiting):
                levels.setdefault(waiting.level, []).append(waiting)
            else:
                self._move(waiting, natural_key(waiting))
        for same_level in levels.values():
            natural = {waiting: natural_key(waiting) for waiting in same_level}
            positions = sorted(same_level, key=natural.__getitem__)
            by_rank = sorted(positions, key=lambda waiting: waiting.task.custom_rank)
            for waiting, other in zip(by_rank, positions, strict=True):
                key = natural[other]
                self._move(waiting, key if other is waiting else (*key, waiting.task.id))

    def _move(self, waiting: Waiting, key: Key) -> None:
        if waiting.key != key:
            self._queue.discard(waiting)
            waiting.key = key
            self._queue.add(waiting)


def auto_levels(
    user: str, autos: Iterable[Waiting], quotas: Quotas
) -> Iterator[tuple[Waiting, Priority]]:
    """The level of each waiting AUTO task of a user: the first tasks get the highest level, the others lower ones."""
    levels = quotas.candidates(user)
    if len(levels) == 1:
        return
    limits = {level: quotas.limits(user, level) for level in levels}
    used: dict[Priority, int] = {}
    by_units: dict[int, _AutoLevels] = {}
    for waiting in sorted(autos, key=lambda waiting: user_priority_key(waiting.task)):
        units = waiting.request.units
        choices = by_units.get(units)
        if choices is None:
            choices = by_units[units] = _AutoLevels(units, limits)
        level = choices.level(used)
        for row in (level, Priority.AUTO) if choices.possible else ():
            used[row] = used.get(row, 0) + units
        yield waiting, level


class _AutoLevels:
    """The levels for tasks of one weight. What other tasks use only grows, so a level without room stays so."""

    def __init__(self, units: int, limits: Mapping[Priority, list[Limit]]) -> None:
        self._units = units
        self._limits = limits
        self.possible = [level for level, rows in limits.items() if allows(rows, units)]
        self._available = list(self.possible)

    def level(self, used: Mapping[Priority, int]) -> Priority:
        """The highest level with room beside what is used; else the lowest possible one."""
        while self._available and not self._fits(self._available[0], used):
            del self._available[0]
        return self._available[0] if self._available else (self.possible or [*self._limits])[-1]

    def _fits(self, level: Priority, used: Mapping[Priority, int]) -> bool:
        rows = self._limits[level]
        return all(limit.available >= self._units + used.get(limit.row, 0) for limit in rows)


def user_priority_key(task: SchedTask) -> tuple[float, float, int]:
    """Orders the tasks of a user: the rank that the user has set, then submission."""
    return (task.custom_rank, task.created_at, task.id)
