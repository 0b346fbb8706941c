"""Executes a batch of commands in one transaction: checks all commands, then writes all rows with few statements.

Commands are checked against the stored values (`Guards`) and against the earlier commands of the batch. For example,
if two commands create tasks with the same name, the second one is refused. A refused command gets its own error and
writes nothing, so the other commands need no rollback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Table, bindparam, delete

from hai_backend.domain.errors import Conflict, HaiError
from hai_backend.domain.task import Rank, Run, Task, TaskEvent
from hai_backend.store.sql import convert, convert_admin, records
from hai_backend.store.sql.commands import AddAudit, Command, CreateTask, Execute, SaveTask
from hai_backend.store.sql.guards import Guards, StoredTask
from hai_backend.store.sql.queries import get_task
from hai_backend.store.sql.transaction import Transaction
from hai_backend.store.tables.accounts import AUDIT
from hai_backend.store.tables.tasks import EVENTS, RANKS, RUNS, TAGS, TASKS

# Built once, because building a statement takes longer than executing it
_DELETE_TAGS = delete(TAGS).where(TAGS.c.task_id.in_(bindparam("task_ids", expanding=True)))


def execute_all(transaction: Transaction, commands: Sequence[Command]) -> list[object]:
    """Execute the commands. Return the result or the error of each."""
    batch = _Batch(transaction, Guards.read(transaction.connection, commands))
    results = [batch.execute(command) for command in commands]
    batch.write()
    transaction.finish()
    return results


class _Batch:
    """Collects the rows that the commands write. If several rows have the same key, the last one is written."""

    def __init__(self, transaction: Transaction, guards: Guards) -> None:
        self._transaction = transaction
        self._guards = guards
        self._created: dict[int, Task] = {}
        self._tasks: dict[int, convert.RowValues] = {}
        self._runs: dict[tuple[Any, ...], convert.RowValues] = {}
        self._ranks: dict[tuple[Any, ...], convert.RowValues] = {}
        self._events: list[convert.RowValues] = []
        self._retagged: set[int] = set()
        self._tags: dict[int, Sequence[str]] = {}
        self._audit: list[convert.RowValues] = []

    def execute(self, command: Command) -> object:
        try:
            match command:
                case CreateTask(task, events, request_id):
                    return self._create(task, events, request_id)
                case SaveTask(task, events, saved_records):
                    return self._save(task, events, saved_records)
                case AddAudit(rows):
                    self._audit += map(convert_admin.audit_to_row, rows)
                case Execute(function):
                    return function(self._transaction)
        except HaiError as error:
            return error
        return None

    def _create(self, task: Task, events: Sequence[TaskEvent], request_id: str) -> Task:
        existing_id = self._guards.requests.get((task.user, request_id)) if request_id else None
        if existing_id is not None:
            return self._existing_task(existing_id)
        self._guards.check_name(task)
        task_id, version = self._transaction.next_task_id(), self._transaction.next_version()
        new = replace(task, id=task_id, revision=1, version=version)
        self._write(new, None, events, request_id)
        self._created[new.id] = new
        if request_id:
            self._guards.requests[task.user, request_id] = new.id
        return new

    def _existing_task(self, task_id: int) -> Task:
        task = self._created.get(task_id) or get_task(self._transaction.connection, task_id)
        if task is None:
            raise Conflict(f"task {task_id} of this request_id is gone; use a new request_id")
        return task

    def _save(
        self, task: Task, events: Sequence[TaskEvent], saved_records: Sequence[object]
    ) -> Task | None:
        stored = self._guards.tasks.get(task.id)
        if stored is None or stored.revision != task.revision - 1:
            return None
        for record in saved_records:
            records.save_record(self._transaction, record)
        new = replace(task, version=self._transaction.next_version())
        self._write(new, stored, events)
        return new

    def _write(
        self,
        task: Task,
        old: StoredTask | None,
        events: Sequence[TaskEvent],
        request_id: str = "",
    ) -> None:
        """Add all rows of a task, and update the stored values for the next commands. `old` is None for a new task."""
        old_count = old.event_count if old else 0
        new = StoredTask(task.revision, old_count + len(events), convert.dump_names(task.tags))
        self._tasks[task.id] = convert.task_to_row(task, new.tags, new.event_count, request_id)
        self._events += [
            convert.event_to_row(task.id, old_count + n, event) for n, event in enumerate(events, 1)
        ]
        self._write_tags(task, old, new)
        self._write_run(task)
        self._guards.update(task, new)

    def _write_tags(self, task: Task, old: StoredTask | None, new: StoredTask) -> None:
        if old and old.tags != new.tags:
            self._retagged.add(task.id)
        if old is None or task.id in self._retagged:
            self._tags[task.id] = task.tags

    def _write_run(self, task: Task) -> None:
        if task.run is None:
            return
        stored_run = self._transaction.stored_run(task.id, task.revision - 1)
        number = task.run.number
        self._runs[task.id, number] = convert.run_to_row(task.id, task.run)
        for rank in _changed_ranks(stored_run, task.run):
            key = (task.id, number, rank.index)
            self._ranks[key] = convert.rank_to_row(task.id, number, rank)
        self._transaction.written_runs[task.id] = (task.revision, task.run)

    def write(self) -> None:
        if self._retagged:
            self._transaction.connection.execute(_DELETE_TAGS, {"task_ids": list(self._retagged)})
        tags = [(task_id, tag) for task_id, tags in self._tags.items() for tag in set(tags)]
        rows: tuple[tuple[Table, Iterable[convert.RowValues]], ...] = (
            (TASKS, self._tasks.values()),
            (TAGS, tags),
            (RUNS, self._runs.values()),
            (RANKS, self._ranks.values()),
            (EVENTS, self._events),
            (AUDIT, self._audit),
        )
        for table, values in rows:
            self._transaction.put(table, list(values))


def _changed_ranks(stored: Run | None, run: Run) -> Iterable[Rank]:
    """Return the ranks to write.

    The thousand ranks of a large gang change one after another. If each change wrote all ranks, it would be a million
    rows.
    """
    if stored is None or stored.number != run.number or len(stored.ranks) != len(run.ranks):
        return run.ranks
    pairs = zip(stored.ranks, run.ranks, strict=True)
    return [new for old, new in pairs if old is not new and old != new]
