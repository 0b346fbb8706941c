"""Logs that are followed: how many at the same time, as each costs the platform a stream, and when one is quiet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hai.client.errors import LimitReached

Answer = TypeVar("Answer")


class LogStreams:
    """Counts what is open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """One more, while the block runs. Raises LimitReached."""
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
    """All of them, and None whenever there was none for so long."""
    upcoming: asyncio.Task[Any] = asyncio.create_task(_next(answers))
    try:
        while True:
            if not (await asyncio.wait({upcoming}, timeout=seconds))[0]:
                yield None
                continue
            if (found := upcoming.result()) is None:
                return
            yield found[0]
            upcoming = asyncio.create_task(_next(answers))
    finally:
        upcoming.cancel()
        await asyncio.wait({upcoming})
        await answers.aclose()


async def _next(answers: AsyncGenerator[Answer, None]) -> tuple[Answer] | None:
    """The next one; None at the end, which a task cannot tell as generators do."""
    async for answer in answers:
        return (answer,)
    return None
