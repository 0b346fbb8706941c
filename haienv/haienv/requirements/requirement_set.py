"""Sets of requirements and projects in place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.errors import UsageError
from haienv.store.lock_file import Lock, normalize_name

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_EXTRAS = re.compile(r"\[[^\[\]/]*\]$")


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """Requirements and projects in place (`editable`); `lock` if they come from a lock file."""

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    python: str = ""
    lock: Lock | None = None


def parse_requirement(line: str) -> Requirement:
    """Parse one requirement. Raises UsageError."""
    from packaging.requirements import (
        InvalidRequirement,
        Requirement,
    )  # slow to import, and not needed without requirements

    try:
        return Requirement(line)
    except InvalidRequirement as error:
        raise UsageError(f"{line!r} is not a requirement: {error}".split("\n")[0]) from error


def merge_requirements(existing: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Requirements after an install: added ones replace those of the same distribution."""
    return _flat({**group_by_name(existing), **group_by_name(added)})


def merge_projects(existing: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Projects after an install: added ones replace those in the same directory, with their extras."""
    return tuple({project_directory(each): each for each in (*existing, *added)}.values())


def absolute_project(text: str, folder: Path = Path()) -> str:
    """The absolute form of an argument of `-e`: DIR or DIR[extra], relative to a folder. Raises UsageError."""
    if "://" in text:
        raise UsageError(
            f"-e takes a directory, not {text}", "request 'NAME @ URL', or install a clone in place"
        )
    return os.path.abspath(folder / text)


def project_directory(project: str) -> str:
    """The directory of DIR or DIR[extra]; names of directories may contain brackets."""
    return project if os.path.isdir(project) else _EXTRAS.sub("", project)


def project_url(project: str) -> str:
    """A file URL with extras, in which special characters of the path are escaped."""
    directory = project_directory(project)
    return Path(directory).as_uri() + project.removeprefix(directory)


def remove_requirements(lines: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Requirements without those of some distributions."""
    grouped = group_by_name(lines)
    return _flat({name: grouped[name] for name in grouped if name not in names})


def group_by_name(lines: Iterable[str]) -> dict[str, list[str]]:
    """Requirements by distribution; one may have several, with different environment markers."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(normalize_name(parse_requirement(line).name), []).append(line)
    return found


def _flat(grouped: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(line for lines in grouped.values() for line in lines)
