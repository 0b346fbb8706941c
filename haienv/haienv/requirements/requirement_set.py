"""What a user asks for, on the command line and in files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.errors import UsageError
from haienv.store.lock import Lock, normalize_name

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_EXTRAS = re.compile(r"\[[^\[\]/]*\]$")


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """Requirements and projects in place; `lock` when a file says exactly what."""

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    python: str = ""
    lock: Lock | None = None


def parse_requirement(line: str) -> Requirement:
    """Parse one requirement, or UsageError."""
    from packaging.requirements import InvalidRequirement, Requirement  # an empty one needs none

    try:
        return Requirement(line)
    except InvalidRequirement as error:
        raise UsageError(f"{line!r} is not a requirement: {error}".split("\n")[0]) from error


def merge_requirements(before: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Requirements after an install: later ones of a name replace earlier ones."""
    return _flat({**group_by_name(before), **group_by_name(more)})


def merge_projects(before: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Projects in place after an install: later ones of a directory replace earlier ones, with their extras."""
    return tuple({project_directory(each): each for each in (*before, *more)}.values())


def absolute_project(text: str, folder: Path = Path()) -> str:
    """What `-e` names, seen from a folder: DIR or DIR[extra], absolute. Raises UsageError."""
    if "://" in text:
        raise UsageError(
            f"-e takes a directory, not {text}", "ask for 'NAME @ URL', or install a clone in place"
        )
    return os.path.abspath(folder / text)


def project_directory(project: str) -> str:
    """Where a project in place lies: DIR of DIR or DIR[extra]. The name of a directory may have brackets itself."""
    return project if os.path.isdir(project) else _EXTRAS.sub("", project)


def project_url(project: str) -> str:
    """The same as a URL, in which no letter of a path means anything else."""
    directory = project_directory(project)
    return Path(directory).as_uri() + project.removeprefix(directory)


def remove_requirements(lines: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Requirements but those of some distributions."""
    requested = group_by_name(lines)
    return _flat({name: requested[name] for name in requested if name not in names})


def group_by_name(lines: Iterable[str]) -> dict[str, list[str]]:
    """Requirements by distribution: there may be several of one, each for other Pythons."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(normalize_name(parse_requirement(line).name), []).append(line)
    return found


def _flat(requested: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(line for lines in requested.values() for line in lines)
