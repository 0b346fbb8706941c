"""When the ranks of a group follow what was learned: now and then, a few in each pass, so that no pass is long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from zlib import crc32

from hai_backend.scheduler.queue.history import History

_FEW = 40  # tasks that are ranked again in one pass


class RatingRefresh:
    """Of one group, every so many `seconds`."""

    def __init__(self, group: str, history: History, seconds: float) -> None:
        self._history = history
        self._seconds = seconds * stagger(group)
        self._next = -inf
        # tasks whose ranks are older than what was learned last
        self._pupils: Iterator[int] = iter(())
        history.refresh()

    def learnt(self, now: float) -> bool:
        """True while what tasks like others are expected to do changes."""
        if self._next == -inf:
            self._next = now + self._seconds
        if self._history.unread and now >= self._next:
            self._history.outdate()
            self._next = now + self._seconds
        return self._history.renew(_FEW)

    def teach(self, tasks: Iterable[int]) -> None:
        """From now on these are to be ranked again."""
        self._pupils = iter(list(tasks))

    def pupils(self) -> Iterator[int]:
        """The tasks that are ranked again in this pass."""
        return islice(self._pupils, _FEW)


def stagger(group: str) -> float:
    """Groups do not all learn in the same pass: this one after so many times the usual time."""
    return 0.75 + crc32(group.encode()) % 64 / 128
