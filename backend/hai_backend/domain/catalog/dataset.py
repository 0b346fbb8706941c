"""Datasets: data that tasks read, with a name and a version. Mount rules grant the access to the data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Visibility(StrEnum):
    PUBLIC = "PUBLIC"
    GROUP = "GROUP"
    PRIVATE = "PRIVATE"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset. `path` is its path in tasks."""

    name: str
    version: str
    path: str
    owner: str
    user_group: str = ""
    visibility: Visibility = Visibility.PRIVATE
    size_bytes: int = 0  # 0 if it is not known
    description: str = ""
    created_at: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}:{self.version}"
