"""Write commands. Callers queue them, and both databases execute all queued commands in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import Task, TaskEvent
from hai_backend.store.base import AuditRow
from hai_backend.store.sql.transaction import Transaction

BATCH_LIMIT = 512
"""The largest number of commands in a transaction. Limits its memory and the time until new versions are visible."""


@dataclass(frozen=True, slots=True)
class CreateTask:
    """Inserts a task. The result is the stored task."""

    task: Task
    events: Sequence[TaskEvent]
    request_id: str


@dataclass(frozen=True, slots=True)
class SaveTask:
    """Replaces a task and saves records, if the stored revision is the previous one. The result is the task or None."""

    task: Task
    events: Sequence[TaskEvent]
    records: Sequence[object]


@dataclass(frozen=True, slots=True)
class AddAudit:
    """Appends audited calls."""

    rows: Sequence[AuditRow]


@dataclass(frozen=True, slots=True)
class Execute:
    """Calls a function within the transaction, for rare writes. The result is the return value of the function."""

    function: Callable[[Transaction], object]


Command = CreateTask | SaveTask | AddAudit | Execute


@dataclass(frozen=True, slots=True, eq=False)
class QueuedCommand:
    """A command and the future on which its caller waits."""

    command: Command
    future: asyncio.Future[object]


def set_results(results: Iterable[tuple[QueuedCommand, object]]) -> None:
    """Give every caller its result or error. Runs in the event loop; some callers may have been cancelled."""
    for queued, result in results:
        if queued.future.done():
            continue
        if isinstance(result, HaiError):
            queued.future.set_exception(result)
        else:
            queued.future.set_result(result)
