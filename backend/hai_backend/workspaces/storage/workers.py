"""Work on storage, done one after the other; where storage is slow, many things at a time.

On a disk of this machine each answer takes microseconds, and threads would only be in one another's way; over a network
each takes a round trip, and who asks one by one waits for all of them. Which it is shows while the first is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, Protocol, TypeVar

from hai_backend.workspaces.storage.directories import Directories

THREADS = 16
PART, NAMES = 10, 100  # files that one thread makes before it takes others; names that it looks at
TRIAL_SECONDS = 0.05  # too little to say anything
SLOW_SECONDS = 60.0  # so long nobody asks again
# A small file that is made, and bytes that take about as long; a disk of this machine takes 1.5e-4 for it.
FILE_SECONDS, FILE_BYTES = 5e-4, 16 << 10
NAME_SECONDS = 50e-6  # a name that is looked at; such a disk takes 3e-6


class Working(Protocol):
    """What one thread works with. `done` counts pieces of work that take about as long as one another."""

    done: int

    def close(self) -> None:
        """It does nothing more."""


class Walker(Working):
    """What works in one tree."""

    def __init__(self, folders: Directories) -> None:
        self.folders = folders
        self.done = 0

    def close(self) -> None:
        self.folders.close()


class Storage:
    """What was found of where a workspace lies. Hands of many threads may tell."""

    def __init__(self) -> None:
        self._slow_until = 0.0

    @property
    def slow(self) -> bool:
        """Whether it was a moment ago."""
        return time.monotonic() < self._slow_until

    def found_slow(self) -> None:
        """Who works there next need not try."""
        self._slow_until = time.monotonic() + SLOW_SECONDS


Hand = TypeVar("Hand", bound=Working)
Work = TypeVar("Work")
Answer = TypeVar("Answer")


def is_slow(took: float, usual: float) -> bool:
    """Whether what should be done in so many seconds has taken too long."""
    return took > max(TRIAL_SECONDS, usual)


def parts(things: Iterable[Work], number: int) -> Iterator[list[Work]]:
    """So many neighbours at a time."""
    left = iter(things)
    while part := list(islice(left, number)):
        yield part


class Workers(Generic[Hand]):
    """`hand` makes another one. Storage is slow when a piece of work takes longer than `seconds`."""

    def __init__(
        self, hand: Callable[[], Hand], seconds: float, storage: Storage | None = None
    ) -> None:
        self._hand = hand
        self._free = deque([hand()])
        self.all = list(self._free)
        self._seconds = seconds
        self._took = 0.0
        self._storage = storage or Storage()
        self._threads = _threads() if self._storage.slow else None

    @property
    def ahead(self) -> int:
        """So many pieces of work may be begun before the first is asked for."""
        return 1 if self._threads is None else 2 * THREADS

    def begin(self, do: Callable[[Hand, Work], Answer], work: Work) -> Future[Answer]:
        """Do it, now or in a thread."""
        if self._threads is not None:
            return self._threads.submit(self._by_any, do, work)
        done = Future[Answer]()
        try:
            done.set_result(self._now(do, work))
        except Exception as error:
            done.set_exception(error)
        return done

    def each(
        self, do: Callable[[Hand, Work], Answer], all_work: Iterable[Work]
    ) -> Iterator[Answer]:
        """What comes of each, in order. Not all are begun at once."""
        begun = deque[Future[Answer]]()
        for work in all_work:
            if self._threads is None:
                yield self._now(do, work)
                continue
            begun.append(self.begin(do, work))
            if len(begun) >= self.ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()

    def _now(self, do: Callable[[Hand, Work], Answer], work: Work) -> Answer:
        began = time.monotonic()
        answer = self._by_any(do, work)
        self._took += time.monotonic() - began
        if is_slow(self._took, self._seconds * self.all[0].done):
            self._threads = _threads()
            self._storage.found_slow()
        return answer

    def _by_any(self, do: Callable[[Hand, Work], Answer], work: Work) -> Answer:
        try:
            hand = self._free.pop()
        except IndexError:
            hand = self._hand()
            self.all.append(hand)
        try:
            return do(hand, work)
        finally:
            self._free.append(hand)

    def close(self) -> None:
        """What has begun is done, and the rest is not."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for hand in self.all:
            hand.close()


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "storage")
