"""Python environments on the cluster's storage (made by haienv; how they lie there: docs/contributing/environments.md).

The files are the truth. What is kept here is what was last seen of them, so that it can be told when nobody can read
them, or when they are gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.catalog.dataset import Visibility

SYSTEM = "system"
"""The owner whose environments everybody finds by their bare names."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHOWN = 64  # of a name that may be none
LAYER = re.compile(r"[0-9a-f]{24}")
LOCK_HASH = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(rf"({NAME.pattern})(?:\[({NAME.pattern})\])?")
_OLD_NAME = re.compile(r"py[0-9]{1,3}-([0-9]{6})")  # py3-202111 of HAI is 202111 of the system


class EnvironmentState(StrEnum):
    BUILDING = "BUILDING"
    READY = "READY"
    BROKEN = "BROKEN"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, order=True)
class EnvironmentName:
    """Which environment: name[owner], as people write it."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.name[:_SHOWN]}[{self.owner[:_SHOWN]}]"

    @property
    def sound(self) -> bool:
        """Whether there can be one of that name."""
        return bool(NAME.fullmatch(self.name) and NAME.fullmatch(self.owner))


@dataclass(frozen=True, slots=True)
class Environment:
    """`parent` is name[owner]; `layer` the directory of the owner's that it is now; packages and bytes of its own."""

    owner: str
    name: str
    state: EnvironmentState = EnvironmentState.READY
    message: str = ""
    visibility: Visibility = Visibility.PRIVATE
    user_group: str = ""
    parent: str = ""
    python_version: str = ""
    lock_hash: str = ""
    layer: str = ""
    packages: int = 0
    size_bytes: int = 0
    description: str = ""
    deprecated: str = ""  # what to use instead
    created_at: float = 0.0
    updated_at: float = 0.0

    @property
    def called(self) -> EnvironmentName:
        """Its name and owner."""
        return EnvironmentName(self.owner, self.name)


def parse_reference(text: str) -> tuple[str, str] | None:
    """Name and owner (empty: not said) of `name` or `name[owner]`; None: it is neither."""
    match = _REFERENCE.fullmatch(text)
    return (match[1], match[2] or "") if match else None


def candidates(text: str, user: str) -> list[EnvironmentName]:
    """What a reference may mean to a user before others' environments are looked through, likeliest first."""
    parsed = parse_reference(text)
    if parsed is None:
        return []
    name, owner = parsed
    if owner:
        return [EnvironmentName(owner, name)]
    found = [EnvironmentName(user, name), EnvironmentName(SYSTEM, name)]
    if old := _OLD_NAME.fullmatch(name):
        found.append(EnvironmentName(SYSTEM, old[1]))
    return found


def sees(environment: Environment, user: str, groups: Iterable[str]) -> bool:
    """Whether a user may know of an environment and use it."""
    if environment.owner == user or environment.visibility is Visibility.PUBLIC:
        return True
    return environment.visibility is Visibility.GROUP and environment.user_group in groups
