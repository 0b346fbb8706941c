"""Runs the coroutines of an agent in one task group, so that none ends unnoticed.

An agent that has lost a coroutine looks alive but is broken: it may never attach again, or never end its program. So if
a coroutine fails, or one ends that must not, the agent fails, and its program ends with it. This includes
`CancelledError`: it is raised in a coroutine that nobody has cancelled, if something that it awaits was cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

_DAY_SECONDS = 86_400.0
_Work = Coroutine[Any, Any, None]
_Task = asyncio.Task[None]


class UnexpectedEnd(Exception):
    """A coroutine of the agent has ended unexpectedly."""


class Parts:
    """Begins coroutines in a task group, from `open` until `close`."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def open(self, group: asyncio.TaskGroup) -> None:
        """From now on coroutines can begin."""
        self._group = group
        asyncio.get_running_loop().set_exception_handler(self._unhandled)

    def close(self) -> None:
        """The agent ends: cancel all coroutines."""
        self._closing = True
        for task in self._tasks:
            task.cancel()

    def begin(self, name: str, work: _Work) -> _Task:
        """Run work that may end or be cancelled, but must not fail."""
        return self._create(name, work, _finish)

    def keep_running(self, name: str, work: _Work) -> None:
        """Run work that must not end before `close`."""
        self._create(name, work, self._never_end)

    def _create(self, name: str, work: _Work, check: Callable[[str, _Work], _Work]) -> _Task:
        assert self._group is not None
        task = self._group.create_task(check(name, work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        return task

    async def _never_end(self, name: str, work: _Work) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if self._closing:
                raise
            raise UnexpectedEnd(f"{name} was cancelled") from None
        raise UnexpectedEnd(f"{name} has ended")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback or a task has failed. The agent fails if our code was involved, but not for errors inside gRPC."""
        error = context.get("exception")
        if isinstance(error, Exception) and _went_through_us(error) and not self._closing:
            self.begin("a callback", _fail(error))
        else:
            loop.default_exception_handler(context)


async def until(remaining: Callable[[], float]) -> None:
    """Return when no seconds are `remaining` of a time that may be extended meanwhile."""
    while True:
        seconds = remaining()
        if seconds <= 0:
            return
        await asyncio.sleep(min(seconds, _DAY_SECONDS))


async def _finish(name: str, work: _Work) -> None:
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UnexpectedEnd(f"{name} was cancelled from within") from None


async def _fail(error: Exception) -> NoReturn:
    raise error


def _went_through_us(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith("hai_backend."):
            return True
        trace = trace.tb_next
    return False
