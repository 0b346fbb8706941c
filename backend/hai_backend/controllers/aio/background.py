"""Background tasks of a leader: coroutines that run until the leader is closed.

Tasks of `run` may end. If one fails, its error is logged, and the other tasks continue. Tasks of `keep_running` must
not end. If one ends, the leader stops, because a server without a scheduling loop, for example, only seems healthy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

import structlog

from hai.client.connection.cancellation import error_of
from hai_backend.domain.errors import HaiError, Unavailable

log = structlog.get_logger(__name__)


class BackgroundTasks:
    """`run` and `keep_running` start tasks; `close` ends all of them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken = asyncio.Event()
        self._why = ""

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that may end."""
        return self._begin(work)

    def keep_running(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that must not end before `close`. Awaiting the task raises the error that ended it."""
        task = self._begin(work)
        task.set_name(name)
        task.add_done_callback(self._break)
        return task

    async def broken(self) -> NoReturn:
        """Wait until a task of `keep_running` has ended. Then raise Unavailable."""
        await self._broken.wait()
        raise Unavailable(self._why, reason="PART_ENDED")

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _break(self, task: asyncio.Task[None]) -> None:
        if task.cancelling():  # by `close`
            return
        error = error_of(task)
        how = "it returned" if error is None else repr(error)
        self._why = self._why or f"{task.get_name()} has ended, and must not: {how}"
        self._broken.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (error := error_of(task)) is not None:
            trace = None if isinstance(error, HaiError) else error
            log.error("a loop ended", error=repr(error), exc_info=trace)
