"""Who was cancelled: the asyncio task itself, or only something that it waits for.

asyncio tells both by a CancelledError. The second one passes every `except Exception`, and an asyncio task that it
leaves counts as cancelled: task groups, callbacks and `gather` take that for an end that somebody wished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CancelledWithin(RuntimeError):
    """Something that a task waited for was cancelled, but not the task."""


def being_cancelled() -> bool:
    """Whether the current asyncio task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_forgotten_cancellation() -> None:
    """Call after an `except*` around a TaskGroup whose body only ends by an error.

    When a part of the group fails in the moment in which the task is cancelled, a group of Python before 3.13 raises
    the failure alone, and the task would go on for ever. (When a part fails after the end of the body, such a group
    counts that as a cancellation of the task: hence the condition.)
    """
    if being_cancelled():
        raise asyncio.CancelledError


@contextmanager
def cancelled_only_from_outside(work: str) -> Iterator[None]:
    """Make an error of a cancellation that was not meant for the current task. `what` names the work, for the log."""
    try:
        yield
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        raise CancelledWithin(f"{work}: something that it waited for was cancelled") from error


def error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """What has ended a task that is done, if nobody wished it: its error, or a cancellation that was not meant for it.

    `task.cancelled()` alone tells not whether anybody has called `task.cancel()`.
    """
    if not task.cancelled():
        return task.exception()
    if task.cancelling():
        return None
    return CancelledWithin(f"{task.get_name()}: something that it waited for was cancelled")
