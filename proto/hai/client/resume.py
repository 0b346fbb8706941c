"""Streams that outlive their server: reopened from the last position that was handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TypeVar

from hai.client.backoff import delays
from hai.client.errors import Unreachable

Answer = TypeVar("Answer")
Position = TypeVar("Position")


class _Patience:
    """Waits between attempts, and knows since when there has been no server."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.heard()

    def heard(self) -> None:
        """The server answered: begin anew."""
        self._delays: Iterator[float] = delays()
        self._silent_since: float | None = None

    async def wait(self, error: Unreachable | None) -> None:
        """Pause before the next attempt; raise the error when patience has run out."""
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            self._silent_since = now
        delay = next(self._delays)
        if error and self._seconds is not None:
            left = self._silent_since + self._seconds - now
            if left <= 0:
                raise error
            delay = min(delay, left)
        await asyncio.sleep(delay)


async def resumed(
    reopen: Callable[[Position], AsyncGenerator[Answer, None]],
    position: Position,
    position_of: Callable[[Answer], Position],
    *,
    patience: float | None = None,
    endless: bool = False,
) -> AsyncGenerator[Answer, None]:
    """Yield answers; after each loss of the server reopen at the position of the last one yielded.

    An endless stream is also reopened when the server ends it (it does so when it is stopped).
    """
    waiting = _Patience(patience)
    while True:
        lost: Unreachable | None = None
        try:
            async with aclosing(reopen(position)) as answers:  # ends the call when we are left
                async for answer in answers:
                    waiting.heard()
                    position = position_of(answer)
                    yield answer
        except Unreachable as error:
            lost = error
        if lost is None and not endless:
            return
        await waiting.wait(lost)
