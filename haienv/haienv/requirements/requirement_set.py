"""What a user asks for, on the command line and in files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from haienv.errors import Refused, UsageError
from haienv.layers.base import Base
from haienv.lock import Lock, Pin
from haienv.records import path_fault

_EXTRAS = re.compile(r"\[[^\[\]/]*\]$")


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """Requirements and projects in place; `lock` when a file says exactly what."""

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    python: str = ""
    lock: Lock | None = None

    def exact_for(self, base: Base) -> tuple[Pin, ...] | None:
        """The pins of a lock, if it was made for this ground; None: resolve."""
        if self.lock is None:
            return None
        if self.lock.parent != base.parent_hash or self.lock.sites != base.sites_hash:
            raise Refused(
                "the lock was made for another parent than this",
                "extend the environment whose lock hash stands on its top, or give requirements",
            )
        return self.lock.pins


def gather(asked: RequirementSet, sources: Sequence[str], extras: Sequence[str]) -> RequirementSet:
    """All that is asked for, on the command line and in files."""
    from haienv.requirements.files import read

    for source in sources:
        more = read(Path(source), extras)
        if more.lock and (len(sources) > 1 or asked.requirements or asked.editable):
            raise UsageError(f"{source} is a lock: nothing can be added to it")
        asked = RequirementSet(
            asked.requirements + more.requirements,
            asked.editable + more.editable,
            asked.python or more.python,
            more.lock,
        )
    return _checked(asked)


def _checked(asked: RequirementSet) -> RequirementSet:
    from haienv.requirements.resolve import requirement

    if faults := list(filter(None, map(_project_fault, asked.editable))):
        raise UsageError("; ".join(faults))
    if asked.lock is None:
        for line in asked.requirements:
            requirement(line)
    return replace(asked, requirements=tuple(dict.fromkeys(map(str.strip, asked.requirements))))


def joined(before: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Requirements after an install: later ones of a name replace earlier ones."""
    return _flat({**by_name(before), **by_name(more)})


def projects_joined(before: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Projects in place after an install: later ones of a directory replace earlier ones, with their extras."""
    return tuple({directory_of(each): each for each in (*before, *more)}.values())


def project_at(text: str, folder: Path = Path()) -> str:
    """What `-e` names, seen from a folder: DIR or DIR[extra], absolute. Raises UsageError."""
    if "://" in text:
        raise UsageError(
            f"-e takes a directory, not {text}", "ask for 'NAME @ URL', or install a clone in place"
        )
    return os.path.abspath(folder / text)


def directory_of(project: str) -> str:
    """Where a project in place lies: DIR of DIR or DIR[extra]. The name of a directory may have brackets itself."""
    return project if os.path.isdir(project) else _EXTRAS.sub("", project)


def url_of(project: str) -> str:
    """The same as a URL, in which no letter of a path means anything else."""
    directory = directory_of(project)
    return Path(directory).as_uri() + project.removeprefix(directory)


def _project_fault(project: str) -> str:
    directory = directory_of(project)
    if "#" in directory:  # also where it is encoded
        return f"{directory!r} cannot be installed in place: for uv a path ends at #; rename it"
    if not os.path.isdir(directory):
        return f"{directory!r} is not a directory, so there is no project to install in place"
    return path_fault(directory)


def without(lines: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Requirements but those of some distributions."""
    asked = by_name(lines)
    return _flat({name: asked[name] for name in asked if name not in names})


def by_name(lines: Iterable[str]) -> dict[str, list[str]]:
    """Requirements by distribution: there may be several of one, each for other Pythons."""
    from haienv.lock import normal
    from haienv.requirements.resolve import requirement

    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(normal(requirement(line).name), []).append(line)
    return found


def _flat(asked: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(line for lines in asked.values() for line in lines)
