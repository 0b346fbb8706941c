"""Changes that are completed even if their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from hai.client.connection.cancellation import cancelled_only_from_outside, error_of

Result = TypeVar("Result")


async def shielded(task: asyncio.Task[Result], on_error: Callable[[BaseException], None]) -> Result:
    """Await a task. If the caller is cancelled, the task continues, and `on_error` gets the error if it fails.

    Raises CancelledWithin if the task was cancelled and not the caller.
    """

    def ended(task: asyncio.Task[Result]) -> None:
        if (error := error_of(task)) is not None:
            on_error(error)

    try:
        with cancelled_only_from_outside("a change"):
            return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(ended)
        raise
