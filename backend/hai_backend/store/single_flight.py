"""Combines concurrent calls: callers that wait for the same kind of result share one execution."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hai.client.connection.cancellation import is_being_cancelled
from hai_backend.domain.errors import Unavailable


class SingleFlight:
    """Runs `operation` for several callers at once, one execution at a time.

    Each caller gets the result of an execution that began after its call. All callers that arrive during an execution
    share the next one.
    """

    def __init__(self, operation: Callable[[], Awaitable[None]]) -> None:
        self._operation = operation
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Return or raise as the operation does. Raises Unavailable if `close` or an error stopped the execution."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._execute_after(self._current))
        try:
            await asyncio.shield(self._next)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise Unavailable("the store was closed while it was asked; try again") from None

    async def close(self) -> None:
        """Stop all executions. Their callers get Unavailable."""
        executions = [task for task in (self._current, self._next) if task is not None]
        for task in executions:
            task.cancel()
        await asyncio.gather(*executions, return_exceptions=True)

    async def _execute_after(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        self._current, self._next = self._next, None
        await self._operation()
