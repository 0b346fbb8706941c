"""Times at which time alone changes something for a task of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

Wakeup = tuple[float, int]
"""A time and a task."""


class Wakeups:
    """The wake-ups of one group. Times that are past or infinite are not stored."""

    def __init__(self) -> None:
        self._heap: list[Wakeup] = []
        self._once: set[Wakeup] = set()

    def set(self, at: float, task: int, now: float) -> None:
        """Wake a task at this time."""
        if now < at < inf:
            heappush(self._heap, (at, task))

    def set_once(self, at: float, task: int, now: float) -> None:
        """The same, for a caller that repeats it: equal wake-ups are stored once."""
        if (at, task) not in self._once:
            self._once.add((at, task))
            self.set(at, task, now)

    def append(self, wakeups: Iterable[Wakeup]) -> None:
        """Store future wake-ups unsorted; `arrange` must follow before anything else."""
        self._heap += wakeups

    def arrange(self) -> None:
        """Sort what was appended."""
        heapify(self._heap)

    def next(self) -> float:
        """The next time; infinity: none."""
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float) -> Iterator[int]:
        """The tasks whose time has come, each wake-up once; others may be set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            wakeup = heappop(self._heap)
            self._once.discard(wakeup)
            yield wakeup[1]
