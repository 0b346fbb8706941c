"""A batch of commands in one transaction: guards first, then few statements for all rows together.

Guards are checked against one picture of the stored rows (`Guards`), which also follows the batch itself: of two
creates of one name in a batch the second is refused, and a save sees the revision of the save before it. A refused
command is an outcome of its own and touches nothing, so the others never have to be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Table, delete

from hai_backend.domain.errors import Conflict, HaiError
from hai_backend.domain.task import Rank, Run, Task, TaskEvent
from hai_backend.store.sql import convert, convert_admin, records
from hai_backend.store.sql.commands import AddAudit, Command, CreateTask, Do, SaveTask
from hai_backend.store.sql.guards import Guards, Stored
from hai_backend.store.sql.queries import get_task
from hai_backend.store.sql.transaction import Transaction
from hai_backend.store.tables.accounts import AUDIT
from hai_backend.store.tables.tasks import EVENTS, RANKS, RUNS, TAGS, TASKS


def apply(transaction: Transaction, commands: Sequence[Command]) -> list[object]:
    """Carry out the commands and answer with each one's result, or with the error that it alone gets."""
    batch = _Batch(transaction, Guards.read(transaction.connection, commands))
    outcomes = [batch.outcome(command) for command in commands]
    batch.write()
    transaction.finish()
    return outcomes


class _Batch:
    """Rows gathered from the commands; the last row of a key wins."""

    def __init__(self, transaction: Transaction, guards: Guards) -> None:
        self._transaction = transaction
        self._guards = guards
        self._created: dict[int, Task] = {}
        self._tasks: dict[int, convert.Values] = {}
        self._runs: dict[tuple[Any, ...], convert.Values] = {}
        self._ranks: dict[tuple[Any, ...], convert.Values] = {}
        self._events: list[convert.Values] = []
        self._retagged: set[int] = set()
        self._tags: dict[int, Sequence[str]] = {}
        self._audit: list[convert.Values] = []

    def outcome(self, command: Command) -> object:
        try:
            match command:
                case CreateTask(task, events, request_id):
                    return self._create(task, events, request_id)
                case SaveTask(task, events, kept):
                    return self._save(task, events, kept)
                case AddAudit(rows):
                    self._audit += map(convert_admin.audit_values, rows)
                case Do(run):
                    return run(self._transaction)
        except HaiError as error:
            return error
        return None

    def _create(self, task: Task, events: Sequence[TaskEvent], request_id: str) -> Task:
        first = self._guards.requests.get((task.user, request_id)) if request_id else None
        if first is not None:
            return self._first(first)
        self._guards.check_name(task)
        task_id, version = self._transaction.next_task_id(), self._transaction.next_version()
        new = replace(task, id=task_id, revision=1, version=version)
        self._write(new, None, events, request_id)
        self._created[new.id] = new
        if request_id:
            self._guards.requests[task.user, request_id] = new.id
        return new

    def _first(self, task_id: int) -> Task:
        task = self._created.get(task_id) or get_task(self._transaction.connection, task_id)
        if task is None:
            raise Conflict(f"task {task_id} of this request_id is gone; use a new request_id")
        return task

    def _save(self, task: Task, events: Sequence[TaskEvent], kept: Sequence[object]) -> Task | None:
        stored = self._guards.stored.get(task.id)
        if stored is None or stored.revision != task.revision - 1:
            return None
        for record in kept:
            records.save(self._transaction, record)
        new = replace(task, version=self._transaction.next_version())
        self._write(new, stored, events)
        return new

    def _write(
        self, task: Task, stored: Stored | None, events: Sequence[TaskEvent], request_id: str = ""
    ) -> None:
        before = stored.event_count if stored else 0
        now = Stored(task.revision, before + len(events), convert.dump_names(task.tags))
        self._tasks[task.id] = convert.task_values(task, now.tags, now.event_count, request_id)
        self._events += [
            convert.event_values(task.id, before + n, event) for n, event in enumerate(events, 1)
        ]
        self._write_tags(task, stored, now)
        self._write_run(task)
        self._guards.note(task, now)

    def _write_tags(self, task: Task, before: Stored | None, now: Stored) -> None:
        if before and before.tags != now.tags:
            self._retagged.add(task.id)
        if before is None or task.id in self._retagged:
            self._tags[task.id] = task.tags

    def _write_run(self, task: Task) -> None:
        if task.run is None:
            return
        known = self._transaction.known_run(task.id, task.revision - 1)
        number = task.run.number
        self._runs[task.id, number] = convert.run_values(task.id, task.run)
        for rank in _changed_ranks(known, task.run):
            key = (task.id, number, rank.index)
            self._ranks[key] = convert.rank_values(task.id, number, rank)
        self._transaction.written[task.id] = (task.revision, task.run)

    def write(self) -> None:
        if self._retagged:
            self._transaction.delete(delete(TAGS).where(TAGS.c.task_id.in_(self._retagged)))
        tags = [(task_id, tag) for task_id, tags in self._tags.items() for tag in set(tags)]
        rows: tuple[tuple[Table, Iterable[convert.Values]], ...] = (
            (TASKS, self._tasks.values()),
            (TAGS, tags),
            (RUNS, self._runs.values()),
            (RANKS, self._ranks.values()),
            (EVENTS, self._events),
            (AUDIT, self._audit),
        )
        for table, values in rows:
            self._transaction.put(table, list(values))


def _changed_ranks(known: Run | None, run: Run) -> Iterable[Rank]:
    """A gang of a thousand attaches rank by rank: writing all ranks each time would be a million rows."""
    if known is None or known.number != run.number or len(known.ranks) != len(run.ranks):
        return run.ranks
    pairs = zip(known.ranks, run.ranks, strict=True)
    return [new for old, new in pairs if old is not new and old != new]
