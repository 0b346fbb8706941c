"""Changes that go on when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from hai.client.cancellation import cancelled_only_from_outside, error_of

Answer = TypeVar("Answer")


async def to_the_end(
    task: asyncio.Task[Answer], unheard: Callable[[BaseException], None]
) -> Answer:
    """Await a task, which goes on when the caller is cancelled; `unheard` is told then with what error it ended.

    Raises CancelledWithin when the task, not the caller, was cancelled.
    """

    def ended(task: asyncio.Task[Answer]) -> None:
        if (error := error_of(task)) is not None:
            unheard(error)

    try:
        with cancelled_only_from_outside("a change"):
            return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(ended)
        raise
