"""Reads the stored values against which a batch of commands is checked. Three queries suffice for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Select, any_, bindparam, select
from sqlalchemy.dialects.postgresql import ARRAY

from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.sql.commands import Command, CreateTask, SaveTask
from hai_backend.store.tables.tasks import HAS_REQUEST_ID, TASKS, UNFINISHED

_C = TASKS.c


@dataclass(frozen=True, slots=True)
class StoredTask:
    """The columns of a stored task on which a save depends."""

    revision: int
    event_count: int
    tags: str


@dataclass(frozen=True, slots=True)
class Guards:
    """Stored values. The writes of a batch update them, so each command is checked against the commands before it.

    `names` maps user and name to an unfinished task, `requests` maps user and request_id to the task that was created.
    """

    tasks: dict[int, StoredTask]
    names: dict[tuple[str, str], int]
    requests: dict[tuple[str, str], int]

    @classmethod
    def read(cls, connection: Connection, commands: Sequence[Command]) -> Guards:
        """Read the values that these commands depend on."""
        creates = [c for c in commands if isinstance(c, CreateTask)]
        names = sorted({c.task.spec.name for c in creates})
        requests = sorted({c.request_id for c in creates if c.request_id})
        return cls(
            _stored(connection, sorted({c.task.id for c in commands if isinstance(c, SaveTask)})),
            _task_ids(connection, _NAMES, names),
            _task_ids(connection, _REQUESTS, requests),
        )

    def check_name(self, task: Task) -> None:
        """Raise Conflict if another unfinished task of the user has this name."""
        if task.state is TaskState.FINISHED:
            return
        other = self.names.get((task.user, task.spec.name))
        if other is not None:
            raise name_taken_error(task, other)

    def update(self, task: Task, stored: StoredTask) -> None:
        """Record that this batch writes a task."""
        self.tasks[task.id] = stored
        key = (task.user, task.spec.name)
        if task.state is not TaskState.FINISHED:
            self.names[key] = task.id
        elif self.names.get(key) == task.id:
            del self.names[key]


def name_taken_error(task: Task, other: int) -> Conflict:
    """Return the error for a second unfinished task with the same name."""
    return Conflict(
        f"user {task.user} already has an unfinished task named {task.spec.name!r}: task {other};"
        " choose another name or stop that task",
        reason="NAME_TAKEN",
    )


_Queries = dict[str, Select[Any]]
"""A query for each dialect."""
_VALUES = "many_values"


def _where_in(column: Column[Any], query: Select[Any]) -> _Queries:
    """Restrict a query to rows whose column has one of many values.

    On PostgreSQL, the statement does not depend on the number of values, so it is prepared only once.
    """
    in_list = column.in_(bindparam(_VALUES, expanding=True))
    in_array = column == any_(bindparam(_VALUES, type_=ARRAY(column.type)))
    return {"sqlite": query.where(in_list), "postgresql": query.where(in_array)}


# The conditions omit the user, because SQLite evaluates `(a, b) IN (…)` by reading a whole index.
_STORED = _where_in(_C.id, select(_C.id, _C.revision, _C.event_count, _C.tags))
_NAMES = _where_in(_C.name, select(_C.user_name, _C.name, _C.id).where(UNFINISHED))
_REQUESTS = _where_in(
    _C.request_id, select(_C.user_name, _C.request_id, _C.id).where(HAS_REQUEST_ID)
)


def _rows(connection: Connection, queries: _Queries, values: Sequence[Any]) -> Sequence[Any]:
    if not values:
        return ()
    return connection.execute(queries[connection.dialect.name], {_VALUES: values}).all()


def _stored(connection: Connection, ids: list[int]) -> dict[int, StoredTask]:
    rows = _rows(connection, _STORED, ids)
    return {task_id: StoredTask(revision, count, tags) for task_id, revision, count, tags in rows}


def _task_ids(
    connection: Connection, queries: _Queries, values: list[str]
) -> dict[tuple[str, str], int]:
    rows = _rows(connection, queries, values)
    return {(user, value): task_id for user, value, task_id in rows}
