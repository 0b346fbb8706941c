"""Tells a cancellation of the asyncio task itself from one of something that it waits for.

asyncio raises CancelledError for both. The second one passes every `except Exception`, and a task that ends by it
counts as cancelled: task groups, callbacks and `gather` treat that as an intended end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CancelledWithin(RuntimeError):
    """Something that a task waited for was cancelled, but not the task."""


def is_being_cancelled() -> bool:
    """Whether the current asyncio task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_forgotten_cancellation() -> None:
    """Call after an `except*` around a TaskGroup whose body only ends by an error.

    When a part of the group fails just as the task is cancelled, a group of Python before 3.13 raises only the failure,
    and the task would never end. (When a part fails after the end of the body, such a group counts that as a
    cancellation of the task: hence the condition.)
    """
    if is_being_cancelled():
        raise asyncio.CancelledError


@contextmanager
def cancelled_only_from_outside(work: str) -> Iterator[None]:
    """Turn a cancellation that was not meant for the current task into an error. `work` names the work in it."""
    try:
        yield
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise CancelledWithin(f"{work}: something that it waited for was cancelled") from error


def error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """The error that ended a finished task, or an error for a cancellation that was not meant for it; else None.

    `task.cancelled()` alone does not tell whether `task.cancel()` was called.
    """
    if not task.cancelled():
        return task.exception()
    if task.cancelling():
        return None
    return CancelledWithin(f"{task.get_name()}: something that it waited for was cancelled")
