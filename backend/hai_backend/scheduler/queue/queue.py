"""The waiting tasks of one group, in the order in which they are offered nodes.

Tasks with equal requests form a line. A line has a lane for each user and level (levels from AUTO have their own
lanes). What holds for the first task of a lane (too little quota) holds for all tasks of the lane, and what holds for a
request (too few nodes) holds for the whole line. So a pass examines the heads of lines and what can start, not all
waiting tasks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.queue.precedence import since

Key = tuple[float, ...]
"""Level (negative), merit (negative), begin of the wait, first submission, id: smallest first, never equal.

A task in the position of another task of its user has its own id behind that key: for a moment both may be there.
"""

LaneName = tuple[str, Priority, bool]


@dataclass(slots=True, eq=False)
class Waiting:
    """A queued task that competes for nodes. `quota_level` is the requested level, or what AUTO became; quota counts it
    there.
    """

    task: SchedTask
    request: Request
    quota_level: Priority
    level: Priority
    merit: float
    until: float  # level and merit hold
    lifted: bool = False  # it has waited for too long
    share: str = ""  # the user group whose share it counts for; empty: none
    key: Key = field(init=False)

    @property
    def account(self) -> tuple[str, Priority]:
        """The user and level whose quota it uses."""
        return (self.task.user, self.quota_level)

    @property
    def lane(self) -> LaneName:
        """Equal for tasks of a line that are refused together."""
        return (self.task.user, self.quota_level, self.task.priority is Priority.AUTO)


def natural_key(waiting: Waiting) -> Key:
    """Its position in the queue, before its user's order is applied."""
    task = waiting.task
    return (-waiting.level, -waiting.merit, since(task), task.created_at, task.id)


class Verdict(Enum):
    """What the refusal of one task says about the tasks behind it."""

    NEXT = auto()  # nothing: only this task is refused, or it was served
    LANE = auto()  # no other task of its lane can start
    LINE = auto()  # no other task of its line can start


_KEY = attrgetter("key")


@dataclass(slots=True, eq=False)
class Line:
    """Tasks of equal request and share."""

    request: Request
    lanes: dict[LaneName, list[Waiting]] = field(default_factory=dict)  # each in order
    heads: list[Waiting] = field(default_factory=list)  # the first of each lane, in order

    def add(self, waiting: Waiting) -> None:
        lane = self.lanes[waiting.lane]
        if not lane or waiting.key < lane[0].key:
            if lane:
                self._remove_head(lane[0])
            insort(self.heads, waiting, key=_KEY)
        insort(lane, waiting, key=_KEY)

    def _remove_head(self, head: Waiting) -> None:
        del self.heads[bisect_left(self.heads, head.key, key=_KEY)]

    def discard(self, waiting: Waiting) -> None:
        lane = self.lanes[waiting.lane]
        at = bisect_left(lane, waiting.key, key=_KEY)
        del lane[at]
        if at == 0:
            self._remove_head(waiting)
            if lane:
                insort(self.heads, lane[0], key=_KEY)
            else:
                del self.lanes[waiting.lane]


_UserLanes = dict[tuple[Line, LaneName], list[Waiting]]
"""The lanes of one user."""


class Queue:
    """All lines of a group, and the lanes of each user in them."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Request, str], Line] = {}
        self._fixed_level: dict[str, _UserLanes] = {}
        self._autos: dict[str, _UserLanes] = {}

    def add(self, waiting: Waiting) -> None:
        """Add a task. Its key must be set, and must not change while the task is here."""
        line = self._line(waiting)
        self._lane(line, waiting)
        line.add(waiting)

    def _line(self, waiting: Waiting) -> Line:
        name = (waiting.request, waiting.share)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(waiting.request)
        return line

    def append(self, alike: list[Waiting]) -> None:
        """Add tasks of one lane to a queue that `arrange` will put in order at the end."""
        first = alike[0]
        self._lane(self._line(first), first).extend(alike)

    def _lane(self, line: Line, waiting: Waiting) -> list[Waiting]:
        name = waiting.lane
        lane = line.lanes.get(name)
        if lane is None:
            lane = line.lanes[name] = []
            self._of(waiting).setdefault(waiting.task.user, {})[line, name] = lane
        return lane

    def _of(self, waiting: Waiting) -> dict[str, _UserLanes]:
        return self._autos if waiting.task.priority is Priority.AUTO else self._fixed_level

    def users(self) -> Iterator[str]:
        """Those who have waiting tasks; some twice."""
        return chain(self._fixed_level, self._autos)

    def lanes_of(self, user: str) -> list[list[Waiting]]:
        """The waiting tasks of a user."""
        return [*self._fixed_level.get(user, {}).values(), *self._autos.get(user, {}).values()]

    def autos_of(self, user: str) -> list[Waiting]:
        """The waiting AUTO tasks of a user, in no order."""
        return [*chain.from_iterable(self._autos.get(user, {}).values())]

    def arrange(self) -> None:
        """Put in order what was appended."""
        for line in self._lines.values():
            for lane in line.lanes.values():
                lane.sort(key=_KEY)
            line.heads = sorted((lane[0] for lane in line.lanes.values()), key=_KEY)

    def discard(self, waiting: Waiting) -> None:
        """Remove a task."""
        line, name = self._line(waiting), waiting.lane
        line.discard(waiting)
        if name not in line.lanes:
            self._remove_user_lane(self._of(waiting), waiting.task.user, (line, name))
        if not line.heads:
            del self._lines[waiting.request, waiting.share]

    def _remove_user_lane(
        self, lanes_of_users: dict[str, _UserLanes], user: str, lane: tuple[Line, LaneName]
    ) -> None:
        lanes = lanes_of_users[user]
        del lanes[lane]
        if not lanes:
            del lanes_of_users[user]

    def in_order(self) -> Iterator[Waiting]:
        """All tasks, best first."""
        lanes = (lane for line in self._lines.values() for lane in line.lanes.values())
        return iter(sorted(chain.from_iterable(lanes), key=_KEY))

    def walk(
        self,
        offer: Callable[[Waiting], Verdict],
        usable: Callable[[Request], bool],
        tier: Callable[[Waiting], int] = lambda waiting: 0,
    ) -> None:
        """Offer nodes to one task after the other, best first, without tasks that cannot start.

        `tier` orders the lines within a level; it may rise for a line as offers are taken.
        """
        cursors = [
            _Cursor(line) for line in self._lines.values() if line.heads and usable(line.request)
        ]
        heap = [(_sort_key(cursor, tier), cursor) for cursor in cursors]
        heapify(heap)
        while heap:
            old_key, cursor = heappop(heap)
            if (key := _sort_key(cursor, tier)) > old_key:
                heappush(heap, (key, cursor))
                continue
            verdict = offer(cursor.current)
            if verdict is not Verdict.LINE and cursor.advance(verdict):
                heappush(heap, (_sort_key(cursor, tier), cursor))


def _sort_key(cursor: _Cursor, tier: Callable[[Waiting], int]) -> tuple[float, int, Key]:
    return (cursor.key[0], tier(cursor.current), cursor.key)


class _Cursor:
    """The position of a walk in one line: the best task not yet visited of each lane that was not refused."""

    def __init__(self, line: Line) -> None:
        self._lanes = line.lanes
        self._heads = iter(line.heads)
        self._behind: list[tuple[Key, Waiting, int]] = []  # next in lanes already visited; a heap
        self._move_to(next(self._heads))
        self._head = next(self._heads, None)  # of the next lane

    def _move_to(self, waiting: Waiting, at: int = 0) -> None:
        self.key, self.current, self._at = waiting.key, waiting, at

    def advance(self, verdict: Verdict) -> bool:
        """Go to the next task; False at the end of the line."""
        lane, at = self._lanes[self.current.lane], self._at + 1
        if verdict is Verdict.NEXT and at < len(lane):
            heappush(self._behind, (lane[at].key, lane[at], at))
        head = self._head
        if self._behind and (head is None or self._behind[0][0] < head.key):
            _, waiting, at = heappop(self._behind)
            self._move_to(waiting, at)
            return True
        if head is not None:
            self._move_to(head)
            self._head = next(self._heads, None)
        return head is not None
