"""Resolves references to a task: an id, a yaml file, or a name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, Protocol

from hai.client.errors import Ambiguous, Candidate, NotFound, UsageError
from hai.client.tasks.filters import quote
from hai.client.text.formatting import enum_name
from hai.v1.task_pb2 import Task, TaskState

Kind = Literal["auto", "yaml", "name", "id"]

_LARGEST_ID = 2**63 - 1


def is_id(ref: str) -> bool:
    """Return whether a reference is an id. Only ASCII digits count: other scripts have digits too."""
    return ref.isascii() and ref.isdigit()


def parse_id(ref: str) -> int:
    """Return the id, or 0, which no task has, for other text and for a number of more than 64 bits."""
    if not is_id(ref) or len(ref.lstrip("0")) > len(str(_LARGEST_ID)):
        return 0
    id = int(ref)
    return id if id <= _LARGEST_ID else 0


class Finder(Protocol):
    """The signature of `Tasks.all`."""

    def __call__(self, *, filter: str, page_size: int) -> AsyncIterator[Task]:
        """Yield the tasks that match a filter, newest first."""


class Resolver:
    """Finds a name among the caller's tasks first, then among all tasks that the caller may see."""

    def __init__(self, find: Finder) -> None:
        self._find = find

    async def resolve(self, ref: str, kind: Kind) -> int:
        """Return the id of the task that `ref` refers to."""
        if not ref.strip():
            raise UsageError("no task is given", hint="give an id, a name or a yaml file")
        match kind if kind != "auto" else guess_kind(ref):
            case "id":
                return _require_id(ref)
            case "yaml":
                return await self._find_by_name(_read_task_name(ref))
            case _:
                return await self._find_by_name(ref)

    async def _find_by_name(self, name: str) -> int:
        """Return the id of the newest task with a name. Raises Ambiguous if it belongs to several other users."""
        term = f"name:{quote(name)}"
        async for task in self._find(filter=f"user:me {term}", page_size=50):
            if task.name == name:
                return task.id
        others = await self._latest_of_each_user(name, term)
        if not others:
            raise NotFound(f"no task is named {name!r}", hint="`hai list` shows your tasks")
        if len(others) > 1:
            raise _ambiguous_error(name, others)
        return others[0].id

    async def _latest_of_each_user(self, name: str, term: str) -> list[Task]:
        latest: dict[str, Task] = {}
        async for task in self._find(filter=term, page_size=50):
            if task.name == name:
                latest.setdefault(task.user, task)
        return list(latest.values())


def guess_kind(ref: str) -> Kind:
    """Return the kind of a reference: digits are an id, an existing yaml file is read, others are names."""
    if is_id(ref):
        return "id"
    if ref.endswith((".yml", ".yaml")) and Path(ref).is_file():
        return "yaml"
    return "name"


def _require_id(ref: str) -> int:
    if not is_id(ref):
        raise UsageError(
            f"{ref!r} is not a task id", hint="an id is a number; names need kind name"
        )
    id = parse_id(ref)
    if not id:
        raise NotFound(f"there is no task {ref}", hint="`hai list` shows your tasks")
    return id


def _read_task_name(ref: str) -> str:
    # imported late: only a yaml reference needs the reader
    from hai.client.taskfile.spec import read_spec

    return read_spec(Path(ref), rules=False).name


def _ambiguous_error(name: str, tasks: list[Task]) -> Ambiguous:
    candidates = tuple(
        Candidate(t.id, t.name, t.user, enum_name(TaskState, t.state)) for t in tasks
    )
    listed = ", ".join(f"{c.id} of {c.user}" for c in candidates)
    return Ambiguous(
        f"{name!r} names tasks of several users: {listed}", candidates, hint="give the id instead"
    )
