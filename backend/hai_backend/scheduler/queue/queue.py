"""The waiting tasks of one group, in the order in which they are offered nodes.

Tasks that need the same stand in one line; a line has a lane for each user and level (AUTO and asked for apart). What
holds for the first of a lane (too little quota) holds for all behind it, and what holds for a need (too few nodes) for
all of a line. So a pass looks at the heads of lines, and at what can start, and not at who waits behind.
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
from hai_backend.scheduler.capacity.slots import Need
from hai_backend.scheduler.queue.rating import since

Key = tuple[float, ...]
"""Level (negative), merit (negative), begin of the wait, first submission, id: smallest first, never equal.

Who stands in the place of another task has its own id behind that one's: both may stand there for a moment.
"""

LaneName = tuple[str, Priority, bool]


@dataclass(slots=True, eq=False)
class Waiting:
    """A queued task that competes for nodes. `own_level` is what it asked for or AUTO became; quota counts it there."""

    task: SchedTask
    need: Need
    own_level: Priority
    level: Priority
    merit: float
    until: float  # level and merit hold
    lifted: bool = False  # it has waited for too long
    share: str = ""  # the user group whose part of the node group it counts for; empty: none
    key: Key = field(init=False)

    @property
    def account(self) -> tuple[str, Priority]:
        """Whose quota it takes from, and at which level."""
        return (self.task.user, self.own_level)

    @property
    def lane(self) -> LaneName:
        """Equal for tasks of a line that are treated alike."""
        return (self.task.user, self.own_level, self.task.priority is Priority.AUTO)


def natural_key(waiting: Waiting) -> Key:
    """Its place in the queue, before its user's own wishes."""
    task = waiting.task
    return (-waiting.level, -waiting.merit, since(task), task.created_at, task.id)


class Verdict(Enum):
    """What the answer to one task says about those behind it."""

    NEXT = auto()  # nothing
    LANE = auto()  # nobody else of its lane can start
    LINE = auto()  # nobody else of its line can


_KEY = attrgetter("key")


@dataclass(slots=True, eq=False)
class Line:
    """Tasks of equal need and share."""

    need: Need
    lanes: dict[LaneName, list[Waiting]] = field(default_factory=dict)  # each in order
    heads: list[Waiting] = field(default_factory=list)  # the first of each lane, in order

    def add(self, waiting: Waiting) -> None:
        lane = self.lanes[waiting.lane]
        if not lane or waiting.key < lane[0].key:
            if lane:
                self._behead(lane[0])
            insort(self.heads, waiting, key=_KEY)
        insort(lane, waiting, key=_KEY)

    def _behead(self, head: Waiting) -> None:
        del self.heads[bisect_left(self.heads, head.key, key=_KEY)]

    def discard(self, waiting: Waiting) -> None:
        lane = self.lanes[waiting.lane]
        at = bisect_left(lane, waiting.key, key=_KEY)
        del lane[at]
        if at == 0:
            self._behead(waiting)
            if lane:
                insort(self.heads, lane[0], key=_KEY)
            else:
                del self.lanes[waiting.lane]


_Own = dict[tuple[Line, LaneName], list[Waiting]]
"""The lanes of one user."""


class Queue:
    """All lines of a group, and the lanes of each user in them."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Need, str], Line] = {}
        self._asked: dict[str, _Own] = {}
        self._autos: dict[str, _Own] = {}

    def add(self, waiting: Waiting) -> None:
        """Its key must be set, and must not change while it stands here."""
        line = self._line(waiting)
        self._lane(line, waiting)
        line.add(waiting)

    def _line(self, waiting: Waiting) -> Line:
        name = (waiting.need, waiting.share)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(waiting.need)
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

    def _of(self, waiting: Waiting) -> dict[str, _Own]:
        return self._autos if waiting.task.priority is Priority.AUTO else self._asked

    def users(self) -> Iterator[str]:
        """Those who have waiting tasks; some twice."""
        return chain(self._asked, self._autos)

    def lanes_of(self, user: str) -> list[list[Waiting]]:
        """The waiting tasks of a user."""
        return [*self._asked.get(user, {}).values(), *self._autos.get(user, {}).values()]

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
        """Take a task out."""
        line, name = self._line(waiting), waiting.lane
        line.discard(waiting)
        if name not in line.lanes:
            self._disown(self._of(waiting), waiting.task.user, (line, name))
        if not line.heads:
            del self._lines[waiting.need, waiting.share]

    def _disown(self, all_own: dict[str, _Own], user: str, lane: tuple[Line, LaneName]) -> None:
        own = all_own[user]
        del own[lane]
        if not own:
            del all_own[user]

    def in_order(self) -> Iterator[Waiting]:
        """Everybody, best first."""
        lanes = (lane for line in self._lines.values() for lane in line.lanes.values())
        return iter(sorted(chain.from_iterable(lanes), key=_KEY))

    def walk(
        self,
        offer: Callable[[Waiting], Verdict],
        usable: Callable[[Need], bool],
        tier: Callable[[Waiting], int] = lambda waiting: 0,
    ) -> None:
        """Offer nodes to one task after the other, best first, leaving out those for whom it would be in vain.

        `tier` orders the lines within a level; it may rise for a line as offers are taken.
        """
        cursors = [
            _Cursor(line) for line in self._lines.values() if line.heads and usable(line.need)
        ]
        heap = [(_place(cursor, tier), cursor) for cursor in cursors]
        heapify(heap)
        while heap:
            known, cursor = heappop(heap)
            if (place := _place(cursor, tier)) > known:
                heappush(heap, (place, cursor))
                continue
            verdict = offer(cursor.current)
            if verdict is not Verdict.LINE and cursor.advance(verdict):
                heappush(heap, (_place(cursor, tier), cursor))


def _place(cursor: _Cursor, tier: Callable[[Waiting], int]) -> tuple[float, int, Key]:
    return (cursor.key[0], tier(cursor.current), cursor.key)


class _Cursor:
    """Where a walk stands in one line: the best not yet visited of each lane that is still open."""

    def __init__(self, line: Line) -> None:
        self._lanes = line.lanes
        self._heads = iter(line.heads)
        self._behind: list[tuple[Key, Waiting, int]] = []  # next in lanes already visited; a heap
        self._stand(next(self._heads))
        self._head = next(self._heads, None)  # of the next lane

    def _stand(self, waiting: Waiting, at: int = 0) -> None:
        self.key, self.current, self._at = waiting.key, waiting, at

    def advance(self, verdict: Verdict) -> bool:
        """Go to the next one; False when the line is at its end."""
        lane, at = self._lanes[self.current.lane], self._at + 1
        if verdict is Verdict.NEXT and at < len(lane):
            heappush(self._behind, (lane[at].key, lane[at], at))
        head = self._head
        if self._behind and (head is None or self._behind[0][0] < head.key):
            _, waiting, at = heappop(self._behind)
            self._stand(waiting, at)
            return True
        if head is not None:
            self._stand(head)
            self._head = next(self._heads, None)
        return head is not None
