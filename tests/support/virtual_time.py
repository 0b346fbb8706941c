"""Event loops with virtual time: hours pass in moments, and a program always runs in the same order."""

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
    """A selector that advances the clock instead of waiting for a timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # only a thread or a peer outside the loop can wake the program
            ready = super().select(_DEADLOCK_SECONDS)
            if not ready:
                raise RuntimeError("everybody waits, and nothing will ever happen")
            return ready
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, for work without threads and without peers outside the loop."""

    def __init__(self) -> None:
        self._selector = _LeapingSelector()
        super().__init__(self._selector)
        self._clock_resolution = 1e-6  # after years, rounding loses shorter intervals

    def time(self) -> float:
        return self._selector.now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, as asyncio.run does in real time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class LoopTimers:
    """The clock of servers and fake clusters in a virtual loop."""

    def now(self) -> float:
        return 1_000_000.0 + asyncio.get_running_loop().time()

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, action)


class AheadClock:
    """The real time plus an offset. A test advances it by minutes at once, while programs keep running."""

    def __init__(self) -> None:
        self._offset = 0.0

    def now(self) -> float:
        return time.time() + self._offset

    def advance(self, seconds: float) -> None:
        self._offset += seconds


_PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("host", default=None)


class SimulatedProcess:
    """A process that can be frozen. Several causes may freeze it at once: it runs again when each has thawed it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.deferred: list[asyncio.Handle] = []
        self._freeze_count = 0

    @property
    def frozen(self) -> bool:
        return self._freeze_count > 0

    def freeze(self) -> None:
        """Run nothing of this process until `thaw` has been called as often as `freeze`."""
        self._freeze_count += 1

    def thaw(self) -> None:
        """Undo one `freeze`. After the last one, run what became due in the meantime."""
        self._freeze_count = max(0, self._freeze_count - 1)
        if not self._freeze_count and self.deferred:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SuspendableLoop)
            deferred, self.deferred = self.deferred, []
            loop.resume(deferred)

    def release(self) -> None:
        """Thaw the process for good, however often it was frozen."""
        self._freeze_count = 1
        self.thaw()

    def context(self) -> Context:
        """Return a context. What runs in it belongs to this process."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def create_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine as work of this process."""
        return asyncio.get_running_loop().create_task(work, context=self.context())

    def run(self, action: Callable[..., T], *args: Any) -> T:
        """Call a function at once as work of this process."""
        return self.context().run(action, *args)


def run_outside(action: Callable[..., T], *args: Any) -> T:
    """Call a function as work of no process. What it starts is never frozen."""
    context = copy_context()
    context.run(_PROCESS.set, None)
    return context.run(action, *args)


class SuspendableLoop(VirtualLoop):
    """A virtual loop in which frozen processes do not run."""

    def __init__(self) -> None:
        super().__init__()
        # asyncio puts all due callbacks and timers there.
        self._ready = _ReadyQueue()

    def resume(self, deferred: list[asyncio.Handle]) -> None:
        """Run these handles."""
        self._ready.extend(deferred)


class _ReadyQueue(deque[asyncio.Handle]):
    def append(self, handle: asyncio.Handle, /) -> None:
        process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.frozen:
            process.deferred.append(handle)
        else:
            super().append(handle)


def run_with_processes(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, with processes that can be frozen."""
    with asyncio.Runner(loop_factory=SuspendableLoop) as runner:
        return runner.run(work)
