"""Changes that go on when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


async def to_the_end(
    task: asyncio.Task[Answer], unheard: Callable[[BaseException], None]
) -> Answer:
    """Await a task, which goes on when the caller is cancelled; `unheard` is told then with what error it ended."""

    def ended(task: asyncio.Task[Answer]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            unheard(error)

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(ended)
        raise
