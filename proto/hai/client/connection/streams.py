"""Resumes streams of answers after an outage of the server, and merges several streams into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TypeVar

from hai.client.connection.backoff import delays
from hai.client.errors import Closed, Unreachable, Untrusted

NOTIFY_AFTER_SECONDS = 3.0
"""Seconds without a server after which the caller is notified. A restart takes less."""

Answer = TypeVar("Answer")
Position = TypeVar("Position")
OnLost = Callable[[Unreachable], None]


class _OutageTimer:
    """Waits between attempts, and measures how long no server has answered."""

    def __init__(self, seconds: float | None, on_lost: OnLost | None) -> None:
        self._seconds = seconds
        self._lost = on_lost
        self.reset()

    def reset(self) -> None:
        """Forget earlier failures after an answer of the server."""
        self._delays: Iterator[float] = delays()
        self._notified = False
        self._outage_began: float | None = None

    async def wait(self, error: Unreachable | None) -> None:
        """Wait before the next attempt. Raises the error after too many seconds without a server."""
        now = asyncio.get_running_loop().time()
        if self._outage_began is None:
            self._outage_began = now
        delay = next(self._delays)
        if error and self._seconds is not None:
            remaining = self._outage_began + self._seconds - now
            if remaining <= 0:
                raise error
            delay = min(delay, remaining)
        if error and now - self._outage_began >= NOTIFY_AFTER_SECONDS:
            self._notify(error)
        await asyncio.sleep(delay)

    def _notify(self, error: Unreachable) -> None:
        """Call `on_lost` once for each outage."""
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
    on_lost: OnLost | None = None,
) -> AsyncGenerator[Answer, None]:
    """Yield answers. After each loss of the server, reopen the stream at the position of the last answer.

    An endless stream is also reopened when the server ends it, as a server does when it shuts down. `on_lost` is
    called once for each outage, with the reason. Raises Unreachable after `patience` seconds without a server; None
    means no limit.
    """
    timer = _OutageTimer(patience, on_lost)
    while True:
        failure: Unreachable | None = None
        try:
            # `aclosing` ends the call when the consumer stops iterating
            async with aclosing(reopen(position)) as answers:
                async for answer in answers:
                    timer.reset()
                    position = position_of(answer)
                    yield answer
        except (Untrusted, Closed):
            raise
        except Unreachable as error:
            failure = error
        if failure is None and not endless:
            return
        await timer.wait(failure)


async def merge_streams(*streams: AsyncGenerator[Answer, None]) -> AsyncGenerator[Answer, None]:
    """Yield the answers of all streams in the order in which they arrive.

    Each stream is read one answer ahead. When one stream ends, all of them are closed.
    """
    waiting = {asyncio.ensure_future(anext(stream, None)): stream for stream in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (answer := task.result()) is None:  # the stream has ended
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
