"""The attributes of users and tasks that templates and conditions of mounts may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from hai_backend.domain.accounts.user import User
from hai_backend.domain.task import Task

Value = str | int | tuple[str, ...] | None
Facts = Mapping[str, Value]


class Kind(StrEnum):
    """The type of an attribute; its value may also be None."""

    TEXT = "a text"
    NUMBER = "a number"
    TEXTS = "a list of texts"


class Problem(Exception):
    """An error in a template or condition. Columns count from 1."""

    def __init__(self, column: int, message: str) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


_USER: Mapping[str, tuple[Kind, Callable[[User], Value]]] = {
    "user.name": (Kind.TEXT, lambda user: user.name),
    "user.uid": (Kind.NUMBER, lambda user: user.uid),
    "user.group": (Kind.TEXT, lambda user: user.groups[0] if user.groups else None),
    "user.groups": (Kind.TEXTS, lambda user: user.groups),
    "user.role": (Kind.TEXT, lambda user: user.role.value),
}
_TASK: Mapping[str, tuple[Kind, Callable[[Task], Value]]] = {
    "task.id": (Kind.NUMBER, lambda task: task.id),
    "task.name": (Kind.TEXT, lambda task: task.spec.name),
    "task.type": (Kind.TEXT, lambda task: task.spec.task_type.value),
    "task.group": (Kind.TEXT, lambda task: task.spec.resource.group),
    "task.zone": (Kind.TEXT, lambda task: task.spec.resource.zone),
    "task.image": (Kind.TEXT, lambda task: task.spec.resource.image),
    "task.tags": (Kind.TEXTS, lambda task: task.tags),
}
KINDS: Mapping[str, Kind] = {name: kind for name, (kind, _) in (*_USER.items(), *_TASK.items())}
"""The kinds of all attributes."""


def facts_of(user: User, task: Task | None) -> Facts:
    """Return the values of all attributes. Without a task, the attributes of `task` are omitted."""
    found = {name: get(user) for name, (_, get) in _USER.items()}
    if task is not None:
        found |= {name: get(task) for name, (_, get) in _TASK.items()}
    return found


def kind_of(name: str, column: int) -> Kind:
    """Return the kind of an attribute. Raises Problem if there is no such attribute."""
    if name not in KINDS:
        raise Problem(column, f"there is no {name[:64]!r}; there are {', '.join(KINDS)}")
    return KINDS[name]
