"""Combines and resumes streams of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TypeVar

from hai.client.connection.backoff import delays
from hai.client.errors import Closed, Unreachable, Untrusted

NOTIFY_AFTER_SECONDS = 3.0
"""Seconds without a server until the caller is notified; a restart takes less."""

Answer = TypeVar("Answer")
Position = TypeVar("Position")
OnLost = Callable[[Unreachable], None]


class _Patience:
    """Waits between attempts, and records since when no server has answered."""

    def __init__(self, seconds: float | None, lost: OnLost | None) -> None:
        self._seconds = seconds
        self._lost = lost
        self.reset()

    def reset(self) -> None:
        """The server answered: forget earlier failures."""
        self._delays: Iterator[float] = delays()
        self._notified = False
        self._silent_since: float | None = None

    async def wait(self, error: Unreachable | None) -> None:
        """Pause before the next attempt. Raises the error when the patience is exceeded."""
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            self._silent_since = now
        delay = next(self._delays)
        if error and self._seconds is not None:
            remaining = self._silent_since + self._seconds - now
            if remaining <= 0:
                raise error
            delay = min(delay, remaining)
        if error and now - self._silent_since >= NOTIFY_AFTER_SECONDS:
            self._notify(error)
        await asyncio.sleep(delay)

    def _notify(self, error: Unreachable) -> None:
        """Call `lost` once for each outage."""
        if self._lost and not self._notified:
            self._lost(error)
        self._notified = True


async def resume_stream(
    reopen: Callable[[Position], AsyncGenerator[Answer, None]],
    position: Position,
    position_of: Callable[[Answer], Position],
    *,
    patience: float | None = None,
    endless: bool = False,
    lost: OnLost | None = None,
) -> AsyncGenerator[Answer, None]:
    """Yield answers; after each loss of the server, reopen the stream at the position of the last answer.

    An endless stream is also reopened when the server ends it, which a stopping server does. `lost` is called once
    for each outage, with the reason.
    """
    waiting = _Patience(patience, lost)
    while True:
        failure: Unreachable | None = None
        try:
            async with aclosing(
                reopen(position)
            ) as answers:  # ends the call when the consumer stops
                async for answer in answers:
                    waiting.reset()
                    position = position_of(answer)
                    yield answer
        except (Untrusted, Closed):
            raise
        except Unreachable as error:
            failure = error
        if failure is None and not endless:
            return
        await waiting.wait(failure)


async def merge_streams(*streams: AsyncGenerator[Answer, None]) -> AsyncGenerator[Answer, None]:
    """Yield the answers of all streams. Each stream is read one answer ahead; all end with the first that ends."""
    waiting = {asyncio.ensure_future(anext(stream, None)): stream for stream in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (answer := task.result()) is None:
                    return
                stream = waiting.pop(task)
                yield answer
                waiting[asyncio.ensure_future(anext(stream, None))] = stream
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
