"""The queued tasks of one group, in the order in which they are offered nodes.

Tasks with equal requests form a line. A line has one lane for each user and level; tasks that requested AUTO have lanes
of their own. If the first task of a lane lacks quota, all tasks of the lane do. If a request lacks nodes, all tasks of
the line do. So a pass examines only tasks that start and the first tasks of lanes, and skips most of a long queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.queue.precedence import wait_began_at

Key = tuple[float, ...]
"""Level (negative), merit (negative), start of the wait, first submission, id. The smallest key comes first.

A task that takes the position of another task of its user gets that task's key with its own id appended, so that keys
are unique while the two exchange positions.
"""

LaneName = tuple[str, Priority, bool]


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A queued task that competes for nodes.

    `quota_level` is the requested level, or the level that AUTO was resolved to. Quota is counted at this level.
    """

    task: SchedTask
    request: Request
    quota_level: Priority
    level: Priority
    merit: float
    until: float  # when level or merit changes
    lifted: bool = False  # it has waited longer than `Policy.patience_seconds`
    share: str = ""  # the user group whose share it counts for; empty if there is none
    key: Key = field(init=False)

    @property
    def account(self) -> tuple[str, Priority]:
        """The user and the level whose quota it uses."""
        return (self.task.user, self.quota_level)

    @property
    def lane(self) -> LaneName:
        """The name of the task's lane within its line."""
        return (self.task.user, self.quota_level, self.task.priority is Priority.AUTO)


def natural_key(entry: QueueEntry) -> Key:
    """Return the key of a task that its user has not reordered."""
    task = entry.task
    return (-entry.level, -entry.merit, wait_began_at(task), task.created_at, task.id)


class RefusalScope(IntEnum):
    """Which tasks are refused together with one task, the narrowest scope first."""

    TASK = 1  # only this task
    LANE = 2  # all tasks of its lane
    LINE = 3  # all tasks of its line


_KEY = attrgetter("key")


@dataclass(slots=True, eq=False)
class Line:
    """Tasks with equal requests and shares."""

    request: Request
    lanes: dict[LaneName, list[QueueEntry]] = field(default_factory=dict)  # each in order
    heads: list[QueueEntry] = field(default_factory=list)  # the first of each lane, in order

    def add(self, entry: QueueEntry) -> None:
        """Add a task to its lane, and update the heads."""
        lane = self.lanes[entry.lane]
        if not lane or entry.key < lane[0].key:
            if lane:
                self._remove_head(lane[0])
            insort(self.heads, entry, key=_KEY)
        insort(lane, entry, key=_KEY)

    def _remove_head(self, head: QueueEntry) -> None:
        del self.heads[bisect_left(self.heads, head.key, key=_KEY)]

    def discard(self, entry: QueueEntry) -> None:
        """Remove a task from its lane, and update the heads."""
        lane = self.lanes[entry.lane]
        at = bisect_left(lane, entry.key, key=_KEY)
        del lane[at]
        if at == 0:
            self._remove_head(entry)
            if lane:
                insort(self.heads, lane[0], key=_KEY)
            else:
                del self.lanes[entry.lane]


_UserLanes = dict[tuple[Line, LaneName], list[QueueEntry]]
"""The lanes of one user in all lines."""


class Queue:
    """All lines of a group, and the lanes of each user in them."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Request, str], Line] = {}
        self._fixed_level: dict[str, _UserLanes] = {}
        self._autos: dict[str, _UserLanes] = {}

    def add(self, entry: QueueEntry) -> None:
        """Add a task. Its key must be set, and must not change while the task is in the queue."""
        line = self._line(entry)
        self._lane(line, entry)
        line.add(entry)

    def _line(self, entry: QueueEntry) -> Line:
        """Return the line of a task. Create it if it does not exist."""
        name = (entry.request, entry.share)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(entry.request)
        return line

    def append(self, batch: list[QueueEntry]) -> None:
        """Add tasks of one lane without sorting. `sort` must be called before any other method."""
        first = batch[0]
        self._lane(self._line(first), first).extend(batch)

    def _lane(self, line: Line, entry: QueueEntry) -> list[QueueEntry]:
        """Return the lane of a task in a line. Create it if it does not exist."""
        name = entry.lane
        lane = line.lanes.get(name)
        if lane is None:
            lane = line.lanes[name] = []
            self._of(entry).setdefault(entry.task.user, {})[line, name] = lane
        return lane

    def _of(self, entry: QueueEntry) -> dict[str, _UserLanes]:
        """Return the lanes of tasks like this one by user: AUTO, or fixed levels."""
        return self._autos if entry.task.priority is Priority.AUTO else self._fixed_level

    def users(self) -> Iterator[str]:
        """Yield the users who have queued tasks, some of them twice."""
        return chain(self._fixed_level, self._autos)

    def lanes_of(self, user: str) -> list[list[QueueEntry]]:
        """Return the lanes of a user, each in order."""
        return [*self._fixed_level.get(user, {}).values(), *self._autos.get(user, {}).values()]

    def autos_of(self, user: str) -> list[QueueEntry]:
        """Return the queued AUTO tasks of a user, in no order."""
        return [*chain.from_iterable(self._autos.get(user, {}).values())]

    def sort(self) -> None:
        """Sort the tasks that were appended."""
        for line in self._lines.values():
            for lane in line.lanes.values():
                lane.sort(key=_KEY)
            line.heads = sorted((lane[0] for lane in line.lanes.values()), key=_KEY)

    def discard(self, entry: QueueEntry) -> None:
        """Remove a task that is in the queue."""
        line, name = self._line(entry), entry.lane
        line.discard(entry)
        if name not in line.lanes:
            self._remove_user_lane(self._of(entry), entry.task.user, (line, name))
        if not line.heads:
            del self._lines[entry.request, entry.share]

    def _remove_user_lane(
        self, lanes_of_users: dict[str, _UserLanes], user: str, lane: tuple[Line, LaneName]
    ) -> None:
        lanes = lanes_of_users[user]
        del lanes[lane]
        if not lanes:
            del lanes_of_users[user]

    def in_order(self) -> Iterator[QueueEntry]:
        """Yield all tasks, the first in the queue first."""
        lanes = (lane for line in self._lines.values() for lane in line.lanes.values())
        return iter(sorted(chain.from_iterable(lanes), key=_KEY))

    def walk(
        self,
        offer: Callable[[QueueEntry], RefusalScope | None],
        is_feasible: Callable[[Request], bool],
        tier: Callable[[QueueEntry], int] = lambda entry: 0,
    ) -> None:
        """Offer nodes to one task after the other, in order, and skip tasks that are refused with an earlier one.

        `offer` returns None if the task got nodes. Lines whose request is not feasible are skipped.
        `tier` orders the lines within a level. The tier of a line may rise when a task of the line gets nodes.
        """
        cursors = [
            _Cursor(line)
            for line in self._lines.values()
            if line.heads and is_feasible(line.request)
        ]
        heap = [(_sort_key(cursor, tier), cursor) for cursor in cursors]
        heapify(heap)
        while heap:
            old_key, cursor = heappop(heap)
            if (key := _sort_key(cursor, tier)) > old_key:
                heappush(heap, (key, cursor))
                continue
            scope = offer(cursor.current)
            if scope is RefusalScope.LINE:
                continue
            if cursor.advance(skip_lane=scope is RefusalScope.LANE):
                heappush(heap, (_sort_key(cursor, tier), cursor))


def _sort_key(cursor: _Cursor, tier: Callable[[QueueEntry], int]) -> tuple[float, int, Key]:
    return (cursor.key[0], tier(cursor.current), cursor.key)


class _Cursor:
    """The position of a walk in one line: the next task of each lane that was not refused."""

    def __init__(self, line: Line) -> None:
        self._lanes = line.lanes
        self._heads = iter(line.heads)
        self._visited_lanes: list[tuple[Key, QueueEntry, int]] = []  # a heap of their next tasks
        self._move_to(next(self._heads))
        self._head = next(self._heads, None)  # of the first lane that was not visited

    def _move_to(self, entry: QueueEntry, at: int = 0) -> None:
        self.key, self.current, self._at = entry.key, entry, at

    def advance(self, *, skip_lane: bool) -> bool:
        """Go to the next task. Return False at the end of the line."""
        lane, at = self._lanes[self.current.lane], self._at + 1
        if not skip_lane and at < len(lane):
            heappush(self._visited_lanes, (lane[at].key, lane[at], at))
        head = self._head
        if self._visited_lanes and (head is None or self._visited_lanes[0][0] < head.key):
            _, entry, at = heappop(self._visited_lanes)
            self._move_to(entry, at)
            return True
        if head is not None:
            self._move_to(head)
            self._head = next(self._heads, None)
        return head is not None
