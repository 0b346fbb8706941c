"""Artifacts: outputs and inputs of tasks, with a name and a version; private or of a user group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_PRIVATE = "~"  # no user group begins so


class Direction(StrEnum):
    INPUT = "INPUT"
    OUTPUT = "OUTPUT"


@dataclass(frozen=True, slots=True)
class Artifact:
    """`space` is a user group, or `~` and the owner for a private one: names are unique within it."""

    space: str
    name: str
    version: str
    owner: str
    type: str = ""
    location: str = ""
    description: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0

    @property
    def user_group(self) -> str:
        """Empty for a private one."""
        return "" if self.space.startswith(_PRIVATE) else self.space

    def __str__(self) -> str:
        group = f"{self.user_group}/" if self.user_group else ""
        return f"{group}{self.name}:{self.version}"


@dataclass(frozen=True, slots=True)
class TaskArtifact:
    """A task has at most one artifact in each direction."""

    task_id: int
    direction: Direction
    space: str = ""
    name: str = ""
    version: str = ""


def space_of(user_group: str, owner: str) -> str:
    """The space of an artifact of a group or, without a group, of its owner."""
    return user_group or f"{_PRIVATE}{owner}"
