"""What a batch must know of the stored rows before it writes: three look-ups for the whole batch."""

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
_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Stored:
    """The part of a task's row that a save is checked against."""

    revision: int
    event_count: int
    tags: str


@dataclass(frozen=True, slots=True)
class Guards:
    """`names` are those of unfinished tasks, `requests` those already answered: by user, each with its task."""

    stored: dict[int, Stored]
    names: dict[_Pair, int]
    requests: dict[_Pair, int]

    @classmethod
    def read(cls, connection: Connection, commands: Sequence[Command]) -> Guards:
        """Look up all that these commands depend on."""
        creates = [c for c in commands if isinstance(c, CreateTask)]
        names = sorted({c.task.spec.name for c in creates})
        requests = sorted({c.request_id for c in creates if c.request_id})
        return cls(
            _stored(connection, sorted({c.task.id for c in commands if isinstance(c, SaveTask)})),
            _pairs(connection, _NAMES, names),
            _pairs(connection, _REQUESTS, requests),
        )

    def check_name(self, task: Task) -> None:
        """Raises Conflict when another unfinished task of the user has this name."""
        if task.state is TaskState.FINISHED:
            return
        other = self.names.get((task.user, task.spec.name))
        if other is not None:
            raise name_taken(task, other)

    def note(self, task: Task, stored: Stored) -> None:
        """Follow a write of this batch."""
        self.stored[task.id] = stored
        key = (task.user, task.spec.name)
        if task.state is not TaskState.FINISHED:
            self.names[key] = task.id
        elif self.names.get(key) == task.id:
            del self.names[key]


def name_taken(task: Task, other: int) -> Conflict:
    """The refusal of a second unfinished task of one name."""
    return Conflict(
        f"user {task.user} already has an unfinished task named {task.spec.name!r}: task {other};"
        " choose another name or stop that task",
        reason="NAME_TAKEN",
    )


_Asked = dict[str, Any]
_MANY = "many"


def _among(column: Column[Any], what: Select[Any]) -> _Asked:
    """`what` of rows whose column is one of many values, by dialect, built once: one text for batches of any size."""
    expanding = column.in_(bindparam(_MANY, expanding=True))
    array = column == any_(bindparam(_MANY, type_=ARRAY(column.type)))
    return {"sqlite": what.where(expanding), "postgresql": what.where(array)}


# Names are asked for without their users, because SQLite answers `(a, b) IN (…)` by reading a whole index.
_STORED = _among(_C.id, select(_C.id, _C.revision, _C.event_count, _C.tags))
_NAMES = _among(_C.name, select(_C.user_name, _C.name, _C.id).where(UNFINISHED))
_REQUESTS = _among(_C.request_id, select(_C.user_name, _C.request_id, _C.id).where(HAS_REQUEST_ID))


def _rows(connection: Connection, asked: _Asked, values: Sequence[Any]) -> Sequence[Any]:
    if not values:
        return ()
    return connection.execute(asked[connection.dialect.name], {_MANY: values}).all()


def _stored(connection: Connection, ids: list[int]) -> dict[int, Stored]:
    rows = _rows(connection, _STORED, ids)
    return {task_id: Stored(revision, count, tags) for task_id, revision, count, tags in rows}


def _pairs(connection: Connection, asked: _Asked, values: list[str]) -> dict[_Pair, int]:
    return {(user, value): task_id for user, value, task_id in _rows(connection, asked, values)}
