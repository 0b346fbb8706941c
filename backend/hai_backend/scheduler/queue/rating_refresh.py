"""Refreshes ratings with learned run times: once in a while, a few tasks in each pass, so that no pass is long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from zlib import crc32

from hai_backend.scheduler.queue.history import History

_BATCH = 40  # tasks rated anew in one pass


class RatingRefresh:
    """Of one group, about every `seconds`."""

    def __init__(self, group: str, history: History, seconds: float) -> None:
        self._history = history
        self._seconds = seconds * stagger(group)
        self._next = -inf
        # tasks whose ratings are older than the last refresh
        self._pending: Iterator[int] = iter(())
        history.refresh()

    def is_due(self, now: float) -> bool:
        """True while expected run times change."""
        if self._next == -inf:
            self._next = now + self._seconds
        if self._history.unread and now >= self._next:
            self._history.outdate()
            self._next = now + self._seconds
        return self._history.rebuild(_BATCH)

    def start(self, tasks: Iterable[int]) -> None:
        """Rate these tasks anew in the next passes."""
        self._pending = iter(list(tasks))

    def batch(self) -> Iterator[int]:
        """The tasks to rate anew in this pass."""
        return islice(self._pending, _BATCH)


def stagger(group: str) -> float:
    """Factor of the usual interval, so that groups do not all refresh in the same pass."""
    return 0.75 + crc32(group.encode()) % 64 / 128
