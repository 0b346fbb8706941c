"""Python environments on the cluster's storage, created by haienv (layout: docs/contributing/environments.md).

The files are authoritative. The database stores what was last observed, so that environments are listed even if their
files cannot be read or were deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.catalog.dataset import Visibility

SYSTEM = "system"
"""The owner whose environments all users can name without an owner."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAX_CHARS = 64  # of a name that may be invalid
LAYER = re.compile(r"[0-9a-f]{24}")
LOCK_HASH = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(rf"({NAME.pattern})(?:\[({NAME.pattern})\])?")
_OLD_NAME = re.compile(
    r"py[0-9]{1,3}-([0-9]{6})"
)  # HAI's py3-202111 is the system environment 202111


class EnvironmentState(StrEnum):
    BUILDING = "BUILDING"
    READY = "READY"
    BROKEN = "BROKEN"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, order=True)
class EnvironmentName:
    """The full name of an environment, written name[owner]."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.name[:_MAX_CHARS]}[{self.owner[:_MAX_CHARS]}]"

    @property
    def sound(self) -> bool:
        """Whether name and owner are valid."""
        return bool(NAME.fullmatch(self.name) and NAME.fullmatch(self.owner))


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment. `parent` is a full name, `layer` the current directory.

    `packages` and `size_bytes` do not include the parent.
    """

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
    def full_name(self) -> EnvironmentName:
        """The name with the owner."""
        return EnvironmentName(self.owner, self.name)


def parse_reference(text: str) -> tuple[str, str] | None:
    """Parse `name` or `name[owner]` into name and owner, which is empty for `name`. Return None if it is invalid."""
    match = _REFERENCE.fullmatch(text)
    return (match[1], match[2] or "") if match else None


def candidate_names(text: str, user: str) -> list[EnvironmentName]:
    """Return the environments to which a reference of a user may refer, the preferred one first."""
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


def can_see(environment: Environment, user: str, groups: Iterable[str]) -> bool:
    """Return whether a user may see and use an environment."""
    if environment.owner == user or environment.visibility is Visibility.PUBLIC:
        return True
    return environment.visibility is Visibility.GROUP and environment.user_group in groups
