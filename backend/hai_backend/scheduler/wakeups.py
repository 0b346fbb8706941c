"""When time alone will change something for a task, so that it is looked at again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

Alarm = tuple[float, int]
"""A moment and a task."""


class Wakeups:
    """Those of one group. One that is past or never is not set."""

    def __init__(self) -> None:
        self._heap: list[Alarm] = []
        self._once: set[Alarm] = set()

    def set(self, at: float, task: int, now: float) -> None:
        """Look at a task again then."""
        if now < at < inf:
            heappush(self._heap, (at, task))

    def set_once(self, at: float, task: int, now: float) -> None:
        """The same, for who asks again and again."""
        if (at, task) not in self._once:
            self._once.add((at, task))
            self.set(at, task, now)

    def append(self, alarms: Iterable[Alarm]) -> None:
        """Set some of many, all to come; `arrange` must follow before anything else is done with them."""
        self._heap += alarms

    def arrange(self) -> None:
        """Put in order what was appended."""
        heapify(self._heap)

    def next(self) -> float:
        """The next moment; infinity: none."""
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float) -> Iterator[int]:
        """Tasks whose moment has come, each alarm once; others may be set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            alarm = heappop(self._heap)
            self._once.discard(alarm)
            yield alarm[1]
