"""Streams that outlive their server: reopened from the last position that was handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TypeVar

from hai.client.connection.backoff import delays
from hai.client.errors import Closed, Unreachable, Untrusted

TELL_AFTER = 3.0
"""Seconds without a server after which whoever waits is told: a restart is over before."""

Answer = TypeVar("Answer")
Position = TypeVar("Position")
Lost = Callable[[Unreachable], None]


class _Patience:
    """Waits between attempts, and knows since when there has been no server."""

    def __init__(self, seconds: float | None, lost: Lost | None) -> None:
        self._seconds = seconds
        self._lost = lost
        self.heard()

    def heard(self) -> None:
        """The server answered: begin anew."""
        self._delays: Iterator[float] = delays()
        self._told = False
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
        if error and now - self._silent_since >= TELL_AFTER:
            self._tell(error)
        await asyncio.sleep(delay)

    def _tell(self, error: Unreachable) -> None:
        """Once for each time that the server is away."""
        if self._lost and not self._told:
            self._lost(error)
        self._told = True


async def resumed(
    reopen: Callable[[Position], AsyncGenerator[Answer, None]],
    position: Position,
    position_of: Callable[[Answer], Position],
    *,
    patience: float | None = None,
    endless: bool = False,
    lost: Lost | None = None,
) -> AsyncGenerator[Answer, None]:
    """Yield answers; after each loss of the server reopen at the position of the last one yielded.

    An endless stream is also reopened when the server ends it (it does so when it is stopped). When
    the server stays away, `lost` is called with the reason, once.
    """
    waiting = _Patience(patience, lost)
    while True:
        failure: Unreachable | None = None
        try:
            async with aclosing(reopen(position)) as answers:  # ends the call when we are left
                async for answer in answers:
                    waiting.heard()
                    position = position_of(answer)
                    yield answer
        except (Untrusted, Closed):
            raise
        except Unreachable as error:
            failure = error
        if failure is None and not endless:
            return
        await waiting.wait(failure)
