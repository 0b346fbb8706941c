"""A loop whose clock leaps: hours pass in moments, and the same program does the same things in the same order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_STUCK_SECONDS = 5.0


class _Leaping(selectors.DefaultSelector):
    """Waits for nothing that is only a matter of time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # a thread, or a peer outside, must say something
            ready = super().select(_STUCK_SECONDS)
            if not ready:
                raise RuntimeError("everybody waits, and nothing will ever happen")
            return ready
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Only for work without threads and without peers outside the loop."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)
        self._clock_resolution = 1e-6  # years on, shorter moments get lost in the numbers

    def time(self) -> float:
        return self._leaping.now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class LoopTimers:
    """The clock of servers and fake clusters in such a loop."""

    def now(self) -> float:
        return 1_000_000.0 + asyncio.get_running_loop().time()

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, action)
