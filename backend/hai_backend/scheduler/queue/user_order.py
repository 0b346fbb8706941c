"""The order among the tasks of one user: levels for AUTO, the order that the user has set, the turn of a user.

All three are computed for all queued tasks of a user together, and only for users of whom something has changed. The
tasks of a user at one level exchange their positions in the queue, so reordering them changes nothing for other users.
A user without nodes has a turn: the user's first task ranks higher the longer it waits.
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
from hai_backend.scheduler.queue.queue import Key, Queue, QueueEntry, natural_key
from hai_backend.scheduler.quota import Limit, Quotas, allows
from hai_backend.scheduler.wakeups import Wakeups

_KEY = attrgetter("key")


class UserOrder:
    """The order of users' tasks in one group. `update_precedence` is `GroupState.update_precedence`."""

    def __init__(
        self,
        queue: Queue,
        quotas: Quotas,
        policy: Policy,
        feasible: Feasibility,
        wakeups: Wakeups,
        update_precedence: Callable[..., None],
    ) -> None:
        self._queue = queue
        self._quotas = quotas
        self._policy = policy
        self._feasible = feasible
        self._wakeups = wakeups
        self._update_precedence = update_precedence
        self._ranked: dict[str, int] = {}  # how many tasks of a user have a custom rank
        self._moved: set[str] = set()  # users whose tasks have exchanged positions
        self._turns: dict[str, QueueEntry] = {}  # the first tasks of users without nodes
        self._touched: dict[str, None] = {}

    def level(self, task: SchedTask) -> Priority:
        """Return the level of a task that is added to the queue. The level for AUTO may change before the pass."""
        if task.priority is not Priority.AUTO:
            return task.priority
        return self._quotas.auto_levels(task.user)[-1]

    def touch_all(self) -> None:
        """Update all users before the next pass, because other requests are feasible now."""
        self._touched.update(dict.fromkeys(self._queue.users()))

    def touch(self, user: str) -> None:
        """Update this user before the next pass."""
        self._touched[user] = None

    def add(self, task: SchedTask, number: int) -> None:
        """Record that so many tasks like this one were added to the queue."""
        user = task.user
        self._touched[user] = None
        if task.custom_rank:
            self._ranked[user] = self._ranked.get(user, 0) + number

    def remove(self, entry: QueueEntry) -> None:
        """Record that a task was removed from the queue."""
        user = entry.task.user
        self.touch(user)
        if entry.task.custom_rank:
            self._ranked[user] -= 1
        if self._turns.get(user) is entry:
            del self._turns[user]

    def update(self, now: float) -> None:
        """Update the levels and positions of all users of whom something has changed."""
        for user in self._touched:
            if autos := self._queue.autos_of(user):
                self._resolve(user, autos, now)
            self._give_turn(user, now)
            if self._ranked.get(user) or user in self._moved:
                self._reorder([*chain.from_iterable(self._queue.lanes_of(user))])
                (self._moved.add if self._ranked.get(user) else self._moved.discard)(user)
        self._touched.clear()

    @property
    def reordered(self) -> bool:
        """Whether some tasks have positions that do not follow from their precedence."""
        return bool(self._moved)

    def has_turn(self, entry: QueueEntry) -> bool:
        """Return whether the task is the first task of a user without nodes."""
        return self._turns.get(entry.task.user) is entry

    def _give_turn(self, user: str, now: float) -> None:
        """Give the turn of a user without nodes to the first task that could start."""
        before = self._turns.pop(user, None)
        if before is not None and now >= turn_at(before.task, self._policy):
            self._update_precedence(before, now)
        if self._quotas.uses_any(user):
            return
        first = next(filter(self._could_start, self._heads(user)), None)
        if first is not None:
            self._turns[user] = first
            self._await_turn(first, now)

    def _heads(self, user: str) -> list[QueueEntry]:
        """Return the first task of each lane of a user, in order. If it cannot start, no other task of its lane can."""
        lanes = self._queue.lanes_of(user)
        if user in self._moved:
            return sorted((min(lane, key=natural_key) for lane in lanes), key=natural_key)
        return sorted((lane[0] for lane in lanes), key=_KEY)

    def _could_start(self, entry: QueueEntry) -> bool:
        """Return whether the task could start if its group were empty.

        Only such a task can have the turn of its user.
        """
        limits = self._quotas.limits(*entry.account)
        feasible = self._feasible.refusal(entry.request) is None
        return feasible and allows(limits, entry.request.units)

    def _await_turn(self, entry: QueueEntry, now: float) -> None:
        """Update the precedence of a task whose turn has come, or set a wake-up for its turn."""
        at = turn_at(entry.task, self._policy)
        if now >= at:
            self._update_precedence(entry, now)
        else:
            self._wakeups.set_once(at, entry.task.id, now)

    def _resolve(self, user: str, autos: list[QueueEntry], now: float) -> None:
        """Set the levels of the AUTO tasks of a user."""
        possible = [w for w in autos if self._feasible.refusal(w.request) is None]
        levels = dict(auto_levels(user, possible, self._quotas))
        lowest = self.level(autos[0].task)
        for entry in autos:
            level = levels.get(entry, lowest)
            if level is not entry.quota_level:
                self._update_precedence(entry, now, level)

    def _reorder(self, tasks: Iterable[QueueEntry]) -> None:
        """Order the tasks of a user by custom rank.

        Only tasks that could start exchange positions. A task that cannot start would give its position to a task that
        was submitted later.
        """
        levels: dict[Priority, list[QueueEntry]] = {}
        for entry in tasks:
            if self._could_start(entry):
                levels.setdefault(entry.level, []).append(entry)
            else:
                self._move(entry, natural_key(entry))
        for same_level in levels.values():
            natural = {entry: natural_key(entry) for entry in same_level}
            positions = sorted(same_level, key=natural.__getitem__)
            by_rank = sorted(positions, key=lambda entry: entry.task.custom_rank)
            for entry, other in zip(by_rank, positions, strict=True):
                key = natural[other]
                self._move(entry, key if other is entry else (*key, entry.task.id))

    def _move(self, entry: QueueEntry, key: Key) -> None:
        """Move a task to another position in the queue."""
        if entry.key != key:
            self._queue.discard(entry)
            entry.key = key
            self._queue.add(entry)


def auto_levels(
    user: str, autos: Iterable[QueueEntry], quotas: Quotas
) -> Iterator[tuple[QueueEntry, Priority]]:
    """Yield the level of each queued AUTO task of a user.

    The first tasks get the highest level that has room for them.
    """
    levels = quotas.auto_levels(user)
    if len(levels) == 1:
        return
    limits = {level: quotas.limits(user, level) for level in levels}
    used: dict[Priority, int] = {}
    by_units: dict[int, _AutoLevels] = {}
    for entry in sorted(autos, key=lambda entry: user_priority_key(entry.task)):
        units = entry.request.units
        choices = by_units.get(units)
        if choices is None:
            choices = by_units[units] = _AutoLevels(units, limits)
        level = choices.level(used)
        for row in (level, Priority.AUTO) if choices.possible else ():
            used[row] = used.get(row, 0) + units
        yield entry, level


class _AutoLevels:
    """The levels for tasks that use equal units.

    Other tasks only use more, so a level without room stays without room.
    """

    def __init__(self, units: int, limits: Mapping[Priority, list[Limit]]) -> None:
        self._units = units
        self._limits = limits
        self.possible = [level for level, rows in limits.items() if allows(rows, units)]
        self._available = list(self.possible)

    def level(self, used: Mapping[Priority, int]) -> Priority:
        """Return the highest level with room for the task and for what is used, else the lowest possible level."""
        while self._available and not self._fits(self._available[0], used):
            del self._available[0]
        return self._available[0] if self._available else (self.possible or [*self._limits])[-1]

    def _fits(self, level: Priority, used: Mapping[Priority, int]) -> bool:
        rows = self._limits[level]
        return all(limit.available >= self._units + used.get(limit.row, 0) for limit in rows)


def user_priority_key(task: SchedTask) -> tuple[float, float, int]:
    """Return the sort key of a user's tasks: the rank that the user has set, then submission."""
    return (task.custom_rank, task.created_at, task.id)
