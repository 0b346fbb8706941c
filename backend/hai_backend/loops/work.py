"""What a reign does beside answering: coroutines that end with it.

Work that may end and fails says so, and the rest goes on. A part that must not end, and does, makes the whole reign
fail: a server that no longer schedules, or no longer hears its launcher, looks healthy and is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

import structlog

from hai.client.cancellation import cancelled_only_from_outside
from hai_backend.domain.errors import Unavailable

log = structlog.get_logger(__name__)


class Work:
    """`run` and `keep_running` begin something; `close` ends all that is under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken = asyncio.Event()
        self._why = ""

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin it now."""
        return self._begin(_guarded(work))

    def keep_running(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a part that must not end before `close`. The task raises what has ended it."""
        return self._begin(self._never_end(name, work))

    async def broken(self) -> NoReturn:
        """Wait until a part has ended that must not. Raises Unavailable."""
        await self._broken.wait()
        raise Unavailable(self._why, reason="PART_ENDED")

    async def close(self) -> None:
        """Cancel everything and wait for its end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _never_end(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            with cancelled_only_from_outside(name):
                await work
        except Exception as error:
            self._break(f"{name}: ended by {error!r}")
            raise
        self._break(f"{name}: ended, and should not have")

    def _break(self, why: str) -> None:
        self._why = self._why or why
        self._broken.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a loop ended", error=repr(error), exc_info=error)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    with cancelled_only_from_outside(getattr(work, "__qualname__", "work")):
        await work
