"""Timers of the fake cluster, which use the machine's time or a manual clock."""

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
        """Cancel the timer. A second call has no effect."""


class Timers(Protocol):
    """A clock with timers."""

    def now(self) -> float:
        """Return the seconds since the epoch."""

    def call_later(self, seconds: float, action: Action) -> Timer:
        """Call `action` once, after `seconds`."""


class RealTimers:
    """Timers by the machine's time."""

    def now(self) -> float:
        return time.time()

    def call_later(self, seconds: float, action: Action) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, action)


class _ManualTimer:
    """An entry of the heap. A cancelled entry has no action."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class ManualTimers:
    """Timers by a manual clock. Their actions run within `advance`, in order, each at its own time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, _ManualTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._clock.now()

    def call_later(self, seconds: float, action: Action) -> Timer:
        timer = _ManualTimer(action)
        heapq.heappush(self._heap, (self.now() + seconds, next(self._order), timer))
        return timer

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[None]]) -> None:
        """Advance the clock. `settle` is awaited after each action, so that its effects occur before the next one."""
        await settle()
        end = self.now() + seconds
        while self._heap and self._heap[0][0] <= end:
            due, _, timer = heapq.heappop(self._heap)
            if timer.action is None:
                continue
            self._clock.advance(max(0.0, due - self.now()))
            timer.action()
            await settle()
        self._clock.advance(max(0.0, end - self.now()))


async def pause(timers: Timers, seconds: float) -> None:
    """Sleep by these timers."""
    elapsed = asyncio.Event()
    timer = timers.call_later(seconds, elapsed.set)
    try:
        await elapsed.wait()
    finally:
        timer.cancel()
