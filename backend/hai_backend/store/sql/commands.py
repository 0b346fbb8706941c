"""What callers ask of the writer: values that wait in its queue until a transaction takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hai_backend.domain.task import Task, TaskEvent
from hai_backend.store.base import AuditRow
from hai_backend.store.sql.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CreateTask:
    """Insert a task; answers with the task."""

    task: Task
    events: Sequence[TaskEvent]
    request_id: str


@dataclass(frozen=True, slots=True)
class SaveTask:
    """Replace a task under the guard of its revision, and records with it; answers with the task, or None."""

    task: Task
    events: Sequence[TaskEvent]
    records: Sequence[object]


@dataclass(frozen=True, slots=True)
class AddAudit:
    """Append audited calls."""

    rows: Sequence[AuditRow]


@dataclass(frozen=True, slots=True)
class Do:
    """Any rare write: a function that runs within the transaction; answers with its result."""

    run: Callable[[Transaction], object]


Command = CreateTask | SaveTask | AddAudit | Do
