"""Distinguishes a cancellation of the current asyncio task from one of something that the task awaits.

asyncio raises CancelledError for both. The error of a cancelled awaitable passes every `except Exception`, and a task
that ends by it counts as cancelled: task groups, callbacks and `gather` treat that as an intended end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CancelledWithin(RuntimeError):
    """A task awaited something that was cancelled, but the task itself was not cancelled."""


def is_being_cancelled() -> bool:
    """Return whether the current asyncio task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_forgotten_cancellation() -> None:
    """Raise CancelledError if the current task is being cancelled. Call this after an `except*` around a TaskGroup.

    The body of the TaskGroup must end only by an error. When a part of the group fails just as the task is cancelled,
    Python before 3.13 raises only the failure, and the task would never end. When a part fails after the end of the
    body, the same versions count the failure as a cancellation of the task, hence the condition.
    """
    if is_being_cancelled():
        raise asyncio.CancelledError


@contextmanager
def cancelled_only_from_outside(work: str) -> Iterator[None]:
    """Raise CancelledWithin in place of a CancelledError that was not meant for the current task. `work` names the
    code in the block.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise CancelledWithin(f"{work}: something that it waited for was cancelled") from error


def error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the error that ended a finished task, or None if it succeeded or was cancelled on purpose.

    A cancellation that was not meant for the task counts as an error. `task.cancelled()` alone does not tell whether
    `task.cancel()` was called.
    """
    if not task.cancelled():
        return task.exception()
    if task.cancelling():
        return None
    return CancelledWithin(f"{task.get_name()}: something that it waited for was cancelled")
