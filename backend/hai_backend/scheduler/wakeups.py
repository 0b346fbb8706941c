"""The times at which something changes for a task of a group although no event occurs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

Wakeup = tuple[float, int]
"""A time and a task."""


class Wakeups:
    """The wake-ups of one group. Past and infinite times are not stored."""

    def __init__(self) -> None:
        self._heap: list[Wakeup] = []
        self._once: set[Wakeup] = set()

    def set(self, at: float, task_id: int, now: float) -> None:
        """Set a wake-up for a task."""
        if now < at < inf:
            heappush(self._heap, (at, task_id))

    def set_once(self, at: float, task_id: int, now: float) -> None:
        """Set a wake-up for a task unless the same wake-up was set before."""
        if (at, task_id) not in self._once:
            self._once.add((at, task_id))
            self.set(at, task_id, now)

    def append(self, wakeups: Iterable[Wakeup]) -> None:
        """Add future wake-ups without sorting. `sort` must be called before any other method."""
        self._heap += wakeups

    def sort(self) -> None:
        """Sort the wake-ups that were appended."""
        heapify(self._heap)

    def next_at(self) -> float:
        """Return the time of the next wake-up, or infinity."""
        return self._heap[0][0] if self._heap else inf

    def pop_due(self, now: float) -> Iterator[int]:
        """Remove the wake-ups that are due, and yield their tasks. New wake-ups may be set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            wakeup = heappop(self._heap)
            self._once.discard(wakeup)
            yield wakeup[1]
