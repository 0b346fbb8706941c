"""One question for all who want the same answer: it is put once more, for everybody who came since the last time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hai.client.connection.cancellation import is_being_cancelled
from hai_backend.domain.errors import Unavailable


class SingleFlight:
    """Each caller gets the answer of a question that was put after the caller came; one is under way at a time."""

    def __init__(self, question: Callable[[], Awaitable[None]]) -> None:
        self._question = question
        self._asking: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        """Return, or raise, as the question does. Raises Unavailable when it was closed, or broken off."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._put(self._asking))
        try:
            await asyncio.shield(self._next)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise Unavailable("the store was closed while it was asked; try again") from None

    async def close(self) -> None:
        """Ask no more; who waits is told so."""
        under_way = [task for task in (self._asking, self._next) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _put(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._asking, self._next = self._next, None
        await self._question()
