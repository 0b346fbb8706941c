"""What a user asks for: words of the command line, requirements.txt, pyproject.toml, environment.yml, a lock."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from haienv.errors import Refused, UsageError
from haienv.foundation import Foundation
from haienv.lock import Lock, Pin, logical_lines, parse, pins_of

_CONDA_PIN = re.compile(r"(?:[\w-]+::)?([A-Za-z0-9._-]+)\s*(.*)")
_NOT_ON_INDEXES = ("pip", "python")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirements and projects in place; `lock` when a file says exactly what."""

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    python: str = ""
    lock: Lock | None = None

    def exact_for(self, base: Foundation) -> tuple[Pin, ...] | None:
        """The pins of a lock, if it was made for this ground; None: resolve."""
        if self.lock is None:
            return None
        if self.lock.parent != base.parent_hash or self.lock.sites != base.sites_hash:
            raise Refused(
                "the lock was made for another parent than this",
                "extend the environment whose lock hash stands on its top, or give requirements",
            )
        return self.lock.pins


def gather(asked: Wanted, sources: Sequence[str], extras: Sequence[str]) -> Wanted:
    """All that is asked for, on the command line and in files."""
    for source in sources:
        path = Path(source)
        more = _reader(path)(path, extras)
        if more.lock and (len(sources) > 1 or asked.requirements or asked.editable):
            raise UsageError(f"{source} is a lock: nothing can be added to it")
        asked = Wanted(
            asked.requirements + more.requirements,
            asked.editable + more.editable,
            asked.python or more.python,
            more.lock,
        )
    return _checked(asked)


def _checked(asked: Wanted) -> Wanted:
    from haienv.resolve import requirement

    if asked.lock is None:
        for line in asked.requirements:
            requirement(line)
    return replace(asked, requirements=tuple(dict.fromkeys(map(str.strip, asked.requirements))))


def _reader(path: Path) -> Callable[[Path, Sequence[str]], Wanted]:
    if path.suffix == ".toml":
        return _pyproject
    return _environment_yml if path.suffix in (".yml", ".yaml") else _requirements


def _requirements(path: Path, _: Sequence[str] = ()) -> Wanted:
    text = path.read_text()
    if lock := parse(text):
        return Wanted(tuple(pin.text for pin in lock.pins), (), lock.python, lock)
    found = Wanted()
    for line in logical_lines(text):
        more = _line(path, line)
        found = Wanted(found.requirements + more.requirements, found.editable + more.editable)
    if found.requirements and "--hash=" in text:
        pins = pins_of(text)
        return replace(found, requirements=tuple(pin.text for pin in pins))
    return found


def _line(path: Path, line: str) -> Wanted:
    option, _, value = line.replace("=", " ", 1).partition(" ") if line[0] == "-" else ("", "", "")
    match option:
        case "":
            return Wanted((line.split(" --hash")[0],))
        case "-r" | "--requirement":
            return _requirements(path.parent / value.strip())
        case "-e" | "--editable":
            return Wanted((), (os.path.abspath(path.parent / value.strip()),))
    raise UsageError(
        f"{path}: {line!r} is not understood",
        "indexes are options of haienv: --index, --find-links",
    )


def _pyproject(path: Path, extras: Sequence[str]) -> Wanted:
    project: dict[str, Any] = tomllib.loads(path.read_text()).get("project", {})
    optional = project.get("optional-dependencies", {})
    if unknown := [extra for extra in extras if extra not in optional]:
        raise UsageError(f"{path} has no extra {', '.join(unknown)}", f"it has: {list(optional)}")
    lines = [*project.get("dependencies", []), *(r for extra in extras for r in optional[extra])]
    return Wanted(tuple(lines))


def _environment_yml(path: Path, _: Sequence[str]) -> Wanted:
    """What of conda's file an index of wheels can serve: names and versions; channels mean nothing there."""
    import yaml

    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict) or not isinstance(document.get("dependencies", []), list):
        raise UsageError(f"{path} is not an environment.yml")
    entries = document.get("dependencies", [])
    plain = [_conda(path, entry) for entry in entries if isinstance(entry, str)]
    pip = [line for entry in entries if isinstance(entry, dict) for line in entry.get("pip", [])]
    python = next((v for name, v in plain if name == "python"), "")
    lines = [f"{name}{_specifier(v)}" for name, v in plain if name not in _NOT_ON_INDEXES]
    return Wanted((*lines, *map(str, pip)), (), python.strip("=<>~!* ").removesuffix("."))


def _conda(path: Path, entry: str) -> tuple[str, str]:
    found = _CONDA_PIN.fullmatch(entry)
    if found is None:
        raise UsageError(f"{path}: {entry!r} is not understood")
    version = found[2].strip()
    if version.startswith("=") and not version.startswith("=="):
        # =1.26 and =1.26=build mean 1.26 and what follows
        version = version[1:].split("=")[0] + ".*"
    return found[1], version.replace(".*.*", ".*")


def _specifier(version: str) -> str:
    return version if not version or version[0] in "<>=!~" else f"=={version}"


def joined(before: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Requirements after an install: later ones of a name replace earlier ones."""
    return _lines({**by_name(before), **by_name(more)})


def without(lines: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Requirements but those of some distributions."""
    asked = by_name(lines)
    return _lines({name: asked[name] for name in asked if name not in names})


def by_name(lines: Iterable[str]) -> dict[str, list[str]]:
    """Requirements by distribution: there may be several of one, each for other Pythons."""
    from haienv.lock import normal
    from haienv.resolve import requirement

    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(normal(requirement(line).name), []).append(line)
    return found


def _lines(asked: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(line for lines in asked.values() for line in lines)
