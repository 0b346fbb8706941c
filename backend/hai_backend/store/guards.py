"""What a batch must know of the stored rows before it writes: three look-ups for the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.commands import Command, CreateTask, SaveTask
from hai_backend.store.rows.tasks import HAS_REQUEST_ID, TASKS, UNFINISHED

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
            _names(connection, names) if names else {},
            _requests(connection, requests) if requests else {},
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


# Built once: with a parameter that expands, a batch of any size finds the compiled statement in the cache. Names are
# asked for without their users, because SQLite answers `(a, b) IN (…)` by reading a whole index.
_STORED = select(_C.id, _C.revision, _C.event_count, _C.tags).where(
    _C.id.in_(bindparam("ids", expanding=True))
)
_NAMES = select(_C.user_name, _C.name, _C.id).where(
    _C.name.in_(bindparam("names", expanding=True)), UNFINISHED
)
_REQUESTS = select(_C.user_name, _C.request_id, _C.id).where(
    _C.request_id.in_(bindparam("requests", expanding=True)), HAS_REQUEST_ID
)


def _stored(connection: Connection, ids: list[int]) -> dict[int, Stored]:
    if not ids:
        return {}
    rows = connection.execute(_STORED, {"ids": ids}).all()
    return {task_id: Stored(revision, count, tags) for task_id, revision, count, tags in rows}


def _names(connection: Connection, names: list[str]) -> dict[_Pair, int]:
    rows = connection.execute(_NAMES, {"names": names}).all()
    return {(user, name): task_id for user, name, task_id in rows}


def _requests(connection: Connection, requests: list[str]) -> dict[_Pair, int]:
    rows = connection.execute(_REQUESTS, {"requests": requests}).all()
    return {(user, request): task_id for user, request, task_id in rows}
