"""Processes of a simulation in one loop, each of which can be frozen: as by SIGSTOP, nothing that it began goes on.

A `Host` is one process (or machine). What runs in its context belongs to it, with all tasks and timers that it makes.
While it is frozen these wait; after that they run at once, in their order, and find that time has passed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from hai_backend.testing.virtual import VirtualLoop

T = TypeVar("T")
_HOST: ContextVar[Host | None] = ContextVar("host", default=None)


class Host:
    """Frozen as often as thawed: several causes may stop it at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: list[asyncio.Handle] = []
        self._stops = 0

    @property
    def frozen(self) -> bool:
        return self._stops > 0

    def freeze(self) -> None:
        """Nothing of it runs until `thaw` has been called as often."""
        self._stops += 1

    def thaw(self) -> None:
        """What was due meanwhile is due now."""
        self._stops = max(0, self._stops - 1)
        if not self._stops and self.held:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, FreezingLoop)
            held, self.held = self.held, []
            loop.resume(held)

    def release(self) -> None:
        """Thaw it, however often it was frozen: it is over."""
        self._stops = 1
        self.thaw()

    def context(self) -> Context:
        """What runs in it belongs to this host."""
        context = copy_context()
        context.run(_HOST.set, self)
        return context

    def create_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work of this host."""
        return asyncio.get_running_loop().create_task(work, context=self.context())

    def run(self, action: Callable[..., T], *args: Any) -> T:
        """Call something, now, as this host."""
        return self.context().run(action, *args)


def outside(action: Callable[..., T], *args: Any) -> T:
    """Call something as no host: what it begins is never frozen."""
    context = copy_context()
    context.run(_HOST.set, None)
    return context.run(action, *args)


class FreezingLoop(VirtualLoop):
    """A virtual loop that lets frozen hosts wait."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = _Ready()  # asyncio puts everything that is due there, callbacks and timers

    def resume(self, held: list[asyncio.Handle]) -> None:
        """Let these handles run."""
        self._ready.extend(held)


class _Ready(deque[asyncio.Handle]):
    def append(self, handle: asyncio.Handle, /) -> None:
        host = handle._context.get(_HOST)  # type: ignore[attr-defined]
        if host is not None and host.frozen:
            host.held.append(handle)
        else:
            super().append(handle)


def run_freezing(work: Coroutine[Any, Any, T]) -> T:
    """As run_virtually, with hosts that can be frozen."""
    with asyncio.Runner(loop_factory=FreezingLoop) as runner:
        return runner.run(work)
