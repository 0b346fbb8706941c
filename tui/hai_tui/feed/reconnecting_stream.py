"""A stream of the server that is opened again after each loss."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from hai.client.connection.backoff import delays
from hai.client.errors import Denied, HaiError, Invalid, NotFound, Unauthenticated
from hai_tui.feed.connection_state import Link

Answer = TypeVar("Answer")

FINAL = (Invalid, NotFound)
"""Errors that a retry cannot mend; they are raised to the reader."""


class ReconnectingStream(Generic[Answer]):
    """Opens a stream, passes on its answers, and opens it again after a loss.

    `open` is called for each attempt, so it can resume after the answers that the reader already has. It must raise
    Unreachable at the first loss (`patience=0` with hai.client), so that the link can show the loss.
    """

    def __init__(
        self,
        link: Link,
        open: Callable[[], AsyncGenerator[Answer, None]],
        on_answer: Callable[[Answer], None],
    ) -> None:
        self._link, self._open, self._on_answer = link, open, on_answer

    async def run(self) -> None:
        """Read until the task is cancelled or the server ends the stream. Raises the errors in FINAL."""
        retry_delays = delays()
        while True:
            try:
                async with aclosing(self._open()) as answers:
                    async for answer in answers:
                        self._link.mark_live()
                        retry_delays = delays()
                        self._on_answer(answer)
                return
            except FINAL:
                raise
            except HaiError as error:
                await wait_before_retry(self._link, error, next(retry_delays))


async def wait_before_retry(link: Link, error: HaiError, seconds: float) -> None:
    """Record the error on the link, and wait before the next attempt."""
    if isinstance(error, Unauthenticated | Denied):
        link.mark_refused(error)
        await link.wait(None)
    else:
        link.mark_lost(error, seconds)
        await link.wait(seconds)
