"""Time for everything in the fake cluster: of the machine, or of the test."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from hai_backend.testing import ManualClock

Action = Callable[[], None]


class Timer(Protocol):
    def cancel(self) -> None:
        """Do not ring; asking twice is no error."""


class Timers(Protocol):
    """A clock that can also ring."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def call_later(self, seconds: float, action: Action) -> Timer:
        """Ring once."""


class RealTimers:
    """The machine's time."""

    def now(self) -> float:
        return time.time()

    def call_later(self, seconds: float, action: Action) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, action)


class _Ring:
    """An entry of the heap; a cancelled one is dropped when it comes up."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class ManualTimers:
    """The test's time: nothing rings but within `advance`, each thing at its own moment, in order."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, _Ring]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._clock.now()

    def call_later(self, seconds: float, action: Action) -> Timer:
        ring = _Ring(action)
        heapq.heappush(self._heap, (self.now() + seconds, next(self._order), ring))
        return ring

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[None]]) -> None:
        """Let time pass; `settle` lets everybody act on what rang before the next thing rings."""
        await settle()
        until = self.now() + seconds
        while self._heap and self._heap[0][0] <= until:
            due, _, ring = heapq.heappop(self._heap)
            if ring.action is None:
                continue
            self._clock.advance(max(0.0, due - self.now()))
            ring.action()
            await settle()
        self._clock.advance(max(0.0, until - self.now()))


async def pause(timers: Timers, seconds: float) -> None:
    """Sleep by these timers."""
    over = asyncio.Event()
    timer = timers.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
