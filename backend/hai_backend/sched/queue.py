"""The waiting tasks of one group, in the order in which they are offered nodes.

Tasks that need the same stand in one line; a line has a lane for each user and level (AUTO and asked for apart). What
holds for the first of a lane (too little quota) holds for all behind it, and what holds for a need (too few nodes) for
all of a line. So a pass looks at the heads of lines, and at what can start, and not at who waits behind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from itertools import chain

from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask
from hai_backend.sched.appraise import since
from hai_backend.sched.spots import Need

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


Entry = tuple[Key, Waiting]


@dataclass(slots=True, eq=False)
class Line:
    """Tasks of equal need and share."""

    need: Need
    lanes: dict[LaneName, list[Entry]] = field(default_factory=dict)
    heads: list[Entry] = field(default_factory=list)  # the first of each lane, in order

    def add(self, waiting: Waiting) -> None:
        entry = (waiting.key, waiting)
        lane = self.lanes.get(waiting.lane)
        if lane is None:
            lane = self.lanes[waiting.lane] = []
        if not lane or waiting.key < lane[0][0]:
            if lane:
                del self.heads[bisect_left(self.heads, lane[0])]
            insort(self.heads, entry)
        insort(lane, entry)

    def discard(self, waiting: Waiting) -> None:
        lane = self.lanes[waiting.lane]
        at = bisect_left(lane, (waiting.key,))
        del lane[at]
        if at == 0:
            del self.heads[bisect_left(self.heads, (waiting.key,))]
            if lane:
                insort(self.heads, lane[0])
            else:
                del self.lanes[waiting.lane]


class Queue:
    """All lines of a group."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Need, str], Line] = {}

    def add(self, waiting: Waiting) -> None:
        """Its key must be set, and must not change while it stands here."""
        self._line(waiting).add(waiting)

    def _line(self, waiting: Waiting) -> Line:
        name = (waiting.need, waiting.share)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(waiting.need)
        return line

    def fill(self, many: Iterable[Waiting]) -> None:
        """Like `add` for each of them, to a queue that is empty."""
        lines = self._lines
        for waiting in many:
            line = lines.get((waiting.need, waiting.share)) or self._line(waiting)
            lane = line.lanes.get(name := waiting.lane)
            if lane is None:
                lane = line.lanes[name] = []
            lane.append((waiting.key, waiting))
        for line in self._lines.values():
            for lane in line.lanes.values():
                lane.sort()
            line.heads = sorted(lane[0] for lane in line.lanes.values())

    def discard(self, waiting: Waiting) -> None:
        """Take a task out."""
        line = self._line(waiting)
        line.discard(waiting)
        if not line.heads:
            del self._lines[waiting.need, waiting.share]

    def in_order(self) -> Iterator[Waiting]:
        """Everybody, best first."""
        lanes = (lane for line in self._lines.values() for lane in line.lanes.values())
        return (waiting for _, waiting in sorted(chain.from_iterable(lanes)))

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
        self.key, self.current = line.heads[0]
        self._line = line
        self._next: list[tuple[Key, Waiting, int]] | None = None
        self._at = 0

    def advance(self, verdict: Verdict) -> bool:
        """Go to the next one; False when the line is at its end."""
        if self._next is None:
            self._next = [(key, waiting, 0) for key, waiting in self._line.heads[1:]]
        lane = self._line.lanes[self.current.lane]
        if verdict is Verdict.NEXT and self._at + 1 < len(lane):
            heappush(self._next, (*lane[self._at + 1], self._at + 1))
        if not self._next:
            return False
        self.key, self.current, self._at = heappop(self._next)
        return True
