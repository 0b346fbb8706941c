"""Artifacts: outputs and inputs of tasks, with a name and a version; private or of a user group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_PRIVATE = "~"  # no name of a user group begins with this character


class Direction(StrEnum):
    INPUT = "INPUT"
    OUTPUT = "OUTPUT"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact. Names are unique within a `space`: a user group, or `~` and the owner for private artifacts."""

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
        """The user group; empty for a private artifact."""
        return "" if self.space.startswith(_PRIVATE) else self.space

    def __str__(self) -> str:
        group = f"{self.user_group}/" if self.user_group else ""
        return f"{group}{self.name}:{self.version}"


@dataclass(frozen=True, slots=True)
class TaskArtifact:
    """The artifact of a task in one direction. A task has at most one in each direction."""

    task_id: int
    direction: Direction
    space: str = ""
    name: str = ""
    version: str = ""


def space_of(user_group: str, owner: str) -> str:
    """Return the space of artifacts of a user group, or of the owner if there is no group."""
    return user_group or f"{_PRIVATE}{owner}"
