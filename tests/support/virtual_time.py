"""A loop whose clock leaps: hours pass in moments, and the same program does the same things in the same order."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_DEADLOCK_SECONDS = 5.0


class _LeapingSelector(selectors.DefaultSelector):
    """Waits for nothing that is only a matter of time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # a thread, or a peer outside, must say something
            ready = super().select(_DEADLOCK_SECONDS)
            if not ready:
                raise RuntimeError("everybody waits, and nothing will ever happen")
            return ready
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Only for work without threads and without peers outside the loop."""

    def __init__(self) -> None:
        self._selector = _LeapingSelector()
        super().__init__(self._selector)
        self._clock_resolution = 1e-6  # years on, shorter moments get lost in the numbers

    def time(self) -> float:
        return self._selector.now


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


class AheadClock:
    """The real time, and as much more as it was told: minutes pass at once, and programs of this machine go on."""

    def __init__(self) -> None:
        self._offset = 0.0

    def now(self) -> float:
        return time.time() + self._offset

    def advance(self, seconds: float) -> None:
        self._offset += seconds


_PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("host", default=None)


class SimulatedProcess:
    """Frozen as often as thawed: several causes may stop it at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.deferred: list[asyncio.Handle] = []
        self._freeze_count = 0

    @property
    def frozen(self) -> bool:
        return self._freeze_count > 0

    def freeze(self) -> None:
        """Nothing of it runs until `thaw` has been called as often."""
        self._freeze_count += 1

    def thaw(self) -> None:
        """What was due meanwhile is due now."""
        self._freeze_count = max(0, self._freeze_count - 1)
        if not self._freeze_count and self.deferred:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SuspendableLoop)
            deferred, self.deferred = self.deferred, []
            loop.resume(deferred)

    def release(self) -> None:
        """Thaw it, however often it was frozen: it is over."""
        self._freeze_count = 1
        self.thaw()

    def context(self) -> Context:
        """What runs in it belongs to this host."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def create_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work of this host."""
        return asyncio.get_running_loop().create_task(work, context=self.context())

    def run(self, action: Callable[..., T], *args: Any) -> T:
        """Call something, now, as this host."""
        return self.context().run(action, *args)


def run_outside(action: Callable[..., T], *args: Any) -> T:
    """Call something as no host: what it begins is never frozen."""
    context = copy_context()
    context.run(_PROCESS.set, None)
    return context.run(action, *args)


class SuspendableLoop(VirtualLoop):
    """A virtual loop that lets frozen hosts wait."""

    def __init__(self) -> None:
        super().__init__()
        # asyncio puts all due callbacks and timers there.
        self._ready = _ReadyQueue()

    def resume(self, deferred: list[asyncio.Handle]) -> None:
        """Let these handles run."""
        self._ready.extend(deferred)


class _ReadyQueue(deque[asyncio.Handle]):
    def append(self, handle: asyncio.Handle, /) -> None:
        process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.frozen:
            process.deferred.append(handle)
        else:
            super().append(handle)


def run_with_processes(work: Coroutine[Any, Any, T]) -> T:
    """As run_virtually, with hosts that can be frozen."""
    with asyncio.Runner(loop_factory=SuspendableLoop) as runner:
        return runner.run(work)
