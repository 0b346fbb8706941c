"""Parses and merges requirements and projects in place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.errors import UsageError
from haienv.store.requirements_lock import Lock, normalize_name

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_EXTRAS = re.compile(r"\[[^\[\]/]*\]$")


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """Requirements, and projects in place (`editable`). `lock` is the lock from which they come, if any."""

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    python: str = ""
    lock: Lock | None = None


def parse_requirement(line: str) -> Requirement:
    """Parse one requirement. Raise UsageError if it is invalid."""
    # Slow to import, and only needed if there are requirements
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line)
    except InvalidRequirement as error:
        raise UsageError(f"{line!r} is not a requirement: {error}".split("\n")[0]) from error


def merge_requirements(existing: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Return the requirements after an install. Added ones replace those of the same distribution."""
    return _flatten({**group_by_name(existing), **group_by_name(added)})


def merge_projects(existing: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Return the projects after an install. An added one replaces that of the same directory, including its extras."""
    return tuple({project_directory(each): each for each in (*existing, *added)}.values())


def absolute_project(text: str, folder: Path = Path()) -> str:
    """Return DIR or DIR[extra], an argument of `-e` relative to `folder`, as an absolute path. Raise UsageError."""
    if "://" in text:
        raise UsageError(
            f"-e takes a directory, not {text}", "request 'NAME @ URL', or install a clone in place"
        )
    return os.path.abspath(folder / text)


def project_directory(project: str) -> str:
    """Return the directory of DIR or DIR[extra]. Names of directories may contain brackets, too."""
    return project if os.path.isdir(project) else _EXTRAS.sub("", project)


def project_url(project: str) -> str:
    """Return the file URL of DIR or DIR[extra], in which special characters of the path are escaped."""
    directory = project_directory(project)
    return Path(directory).as_uri() + project.removeprefix(directory)


def remove_requirements(lines: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements without those of some distributions, which are named in normalized form."""
    grouped = group_by_name(lines)
    return _flatten({name: grouped[name] for name in grouped if name not in names})


def group_by_name(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the requirements by distribution. A distribution may have several with different environment markers."""
    grouped: dict[str, list[str]] = {}
    for line in lines:
        grouped.setdefault(normalize_name(parse_requirement(line).name), []).append(line)
    return grouped


def _flatten(grouped: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(line for lines in grouped.values() for line in lines)
