"""One stream of the server, held open: resumed after each loss, closed when the reader leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from hai.client.connection.backoff import delays
from hai.client.errors import Denied, HaiError, Invalid, NotFound, Unauthenticated
from hai_tui.feed.connection_state import Link

Answer = TypeVar("Answer")

FINAL = (Invalid, NotFound)
"""Errors that trying again can not mend; they are the reader's to show."""


class ReconnectingStream(Generic[Answer]):
    """Opens a stream, hands its answers over, and opens it again where it broke off.

    `open` is asked anew each time, so it resumes from what the reader has by then. It must raise
    Unreachable at the first loss (`patience=0` with hai.client), so that the link can say so.
    """

    def __init__(
        self,
        link: Link,
        open: Callable[[], AsyncGenerator[Answer, None]],
        on_answer: Callable[[Answer], None],
    ) -> None:
        self._link, self._open, self._on_answer = link, open, on_answer

    async def run(self) -> None:
        """Until it is cancelled, or the stream ends by itself. Raises what can not be mended."""
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
    """Say on the link what happened, and wait before the next try."""
    if isinstance(error, Unauthenticated | Denied):
        link.mark_refused(error)
        await link.wait(None)
    else:
        link.mark_lost(error, seconds)
        await link.wait(seconds)
