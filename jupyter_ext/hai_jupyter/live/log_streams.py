"""Limits the number of followed logs, because each costs the platform a stream, and reports pauses of a log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hai.client.errors import LimitReached

Answer = TypeVar("Answer")


class LogStreams:
    """Counts the logs that are followed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Count one more log while the block runs. Raises LimitReached."""
        if self.open >= self._limit:
            raise LimitReached(
                f"{self.open} logs are followed already",
                hint="close a log, or raise HaiJupyter.max_log_streams",
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


async def with_pauses(
    answers: AsyncGenerator[Answer, None], seconds: float
) -> AsyncGenerator[Answer | None, None]:
    """Yield all answers, and None whenever no answer comes for some seconds."""
    upcoming: asyncio.Task[Any] = asyncio.create_task(_next(answers))
    try:
        while True:
            if not (await asyncio.wait({upcoming}, timeout=seconds))[0]:
                yield None
                continue
            if (answer := upcoming.result()) is None:
                return
            yield answer[0]
            upcoming = asyncio.create_task(_next(answers))
    finally:
        upcoming.cancel()
        await asyncio.wait({upcoming})
        await answers.aclose()


async def _next(answers: AsyncGenerator[Answer, None]) -> tuple[Answer] | None:
    """Return the next answer as a tuple; None at the end, because a task cannot raise StopAsyncIteration."""
    async for answer in answers:
        return (answer,)
    return None
