"""Runs all coroutines of an agent in one task group, so that none ends unnoticed.

An agent that has lost a coroutine seems to work but is broken: it may never attach again, or never end its program. So
the agent fails, and its program ends, if a coroutine fails or ends too early. A `CancelledError` is also a failure if
the coroutine itself was not cancelled, but something that it awaits was.
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


class Coroutines:
    """Runs coroutines in a task group, from `open` until `close`."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def open(self, group: asyncio.TaskGroup) -> None:
        """Accept coroutines, and run them in `group`."""
        self._group = group
        asyncio.get_running_loop().set_exception_handler(self._unhandled)

    def close(self) -> None:
        """Cancel all coroutines, because the agent ends."""
        self._closing = True
        for task in self._tasks:
            task.cancel()

    def start(self, name: str, work: _Work) -> _Task:
        """Run a coroutine that may end or be cancelled, but must not fail."""
        return self._create(name, work, _fail_if_cancelled_from_within)

    def keep_running(self, name: str, work: _Work) -> None:
        """Run a coroutine that must not end before `close`."""
        self._create(name, work, self._fail_if_ended)

    def _create(self, name: str, work: _Work, check: Callable[[str, _Work], _Work]) -> _Task:
        assert self._group is not None
        task = self._group.create_task(check(name, work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Close the coroutine: its task may have been cancelled before the coroutine began.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _fail_if_ended(self, name: str, work: _Work) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if self._closing:
                raise
            raise UnexpectedEnd(f"{name} was cancelled") from None
        raise UnexpectedEnd(f"{name} has ended")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle the failure of a callback or task: fail if our code was involved, but not for errors inside gRPC."""
        error = context.get("exception")
        if isinstance(error, Exception) and _involves_our_code(error) and not self._closing:
            self.start("a callback", _raise(error))
        else:
            loop.default_exception_handler(context)


async def wait_out(remaining_seconds: Callable[[], float]) -> None:
    """Wait until `remaining_seconds` returns 0 or less. The remaining time may be extended meanwhile."""
    while True:
        seconds = remaining_seconds()
        if seconds <= 0:
            return
        await asyncio.sleep(min(seconds, _DAY_SECONDS))


async def _fail_if_cancelled_from_within(name: str, work: _Work) -> None:
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UnexpectedEnd(f"{name} was cancelled from within") from None


async def _raise(error: Exception) -> NoReturn:
    raise error


def _involves_our_code(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith("hai_backend."):
            return True
        trace = trace.tb_next
    return False
