"""What files ask for: requirements.txt (or a lock), pyproject.toml, environment.yml of conda."""

from __future__ import annotations

import os
import platform
import re
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from haienv.errors import UsageError
from haienv.requirements.requirement_set import (
    RequirementSet,
    directory_of,
    project_at,
    requirement,
)
from haienv.store.lock import is_newer, logical_lines, normal, parse, pins_of
from haienv.store.records import path_fault

_CONDA_PIN = re.compile(r"(?:[\w-]+::)?([A-Za-z0-9._-]+)\s*(.*)")
_NOT_ON_INDEXES = ("pip", "python")


def gather(asked: RequirementSet, sources: Sequence[str], extras: Sequence[str]) -> RequirementSet:
    """All that is asked for, on the command line and in files."""
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
    if faults := list(filter(None, map(_project_fault, asked.editable))):
        raise UsageError("; ".join(faults))
    if asked.lock is None:
        for line in asked.requirements:
            requirement(line)
    return replace(asked, requirements=tuple(dict.fromkeys(map(str.strip, asked.requirements))))


def _project_fault(project: str) -> str:
    directory = directory_of(project)
    if "#" in directory:  # also where it is encoded
        return f"{directory!r} cannot be installed in place: for uv a path ends at #; rename it"
    if not os.path.isdir(directory):
        return f"{directory!r} is not a directory, so there is no project to install in place"
    return path_fault(directory)


def read(path: Path, extras: Sequence[str] = ()) -> RequirementSet:
    """What a file asks for; its name tells of which kind it is. `extras` are those of a pyproject.toml."""
    try:
        return _reader(path)(path, extras)
    except RecursionError as error:
        raise UsageError(f"{path} nests, or names itself, without an end") from error


def _reader(path: Path) -> Callable[[Path, Sequence[str]], RequirementSet]:
    if path.suffix == ".toml":
        return _pyproject
    return _environment_yml if path.suffix in (".yml", ".yaml") else _requirements


def _text(path: Path) -> str:
    """Editors and shells of Windows put a mark in front, and write UTF-16."""
    data = path.read_bytes()
    wide = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8") from error


def _requirements(path: Path, _: Sequence[str] = ()) -> RequirementSet:
    text = _text(path)
    if lock := parse(text):
        return RequirementSet(tuple(pin.text for pin in lock.pins), (), lock.python, lock)
    if is_newer(text):
        raise UsageError(f"{path} is a lock of a newer haienv", "update haienv")
    found = RequirementSet()
    for line in logical_lines(text):
        more = _line(path, line)
        found = RequirementSet(
            found.requirements + more.requirements, found.editable + more.editable
        )
    if found.requirements and "--hash=" in text:
        pins = pins_of(text)
        return replace(found, requirements=tuple(pin.text for pin in pins))
    return found


def _line(path: Path, line: str) -> RequirementSet:
    option, _, value = line.replace("=", " ", 1).partition(" ") if line[0] == "-" else ("", "", "")
    match option:
        case "":
            return RequirementSet((line.split(" --hash")[0],))
        case "-r" | "--requirement":
            return _requirements(path.parent / value.strip())
        case "-e" | "--editable":
            return RequirementSet((), (project_at(value.strip(), path.parent),))
    raise UsageError(
        f"{path}: {line!r} is not understood",
        "indexes are options of haienv: --index, --find-links; constraints are uv's: UV_CONSTRAINT=FILE",
    )


def _pyproject(path: Path, extras: Sequence[str]) -> RequirementSet:
    project = _project(path)
    optional = project.get("optional-dependencies", {})
    if not isinstance(optional, dict):
        raise UsageError(f"{path}: optional-dependencies is not a table")
    if unknown := [extra for extra in extras if extra not in optional]:
        raise UsageError(f"{path} has no extra {', '.join(unknown)}", f"it has: {list(optional)}")
    lines = _lines(path, project.get("dependencies", []))
    return RequirementSet((*lines, *_of_extras(path, project, optional, extras)))


def _of_extras(
    path: Path, project: Mapping[str, Any], optional: Mapping[str, Any], extras: Sequence[str]
) -> Iterator[str]:
    """Extras may name others of the same project, as its_name[other]: it is not asked of an index."""
    known, own = {normal(extra): extra for extra in optional}, normal(str(project.get("name", "")))
    ahead = list(extras)
    for extra in ahead:
        for line in _lines(path, optional[extra]):
            asked = requirement(line)
            if normal(asked.name) != own:
                yield line
                continue
            more = [known[each] for each in sorted(map(normal, asked.extras)) if each in known]
            ahead += [each for each in more if each not in ahead]


def _project(path: Path) -> dict[str, Any]:
    """Its table [project], which says what it depends on."""
    try:
        project = tomllib.loads(_text(path)).get("project")
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    if not isinstance(project, dict) or "dependencies" in str(project.get("dynamic")):
        raise UsageError(
            f"{path} does not say in [project] what it depends on",
            "name packages; or install the project, as a package or in place with -e",
        )
    return project


def _lines(path: Path, values: object) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UsageError(f"{path} has something else than a list of requirements: {values!r:.80}")
    return values


def _environment_yml(path: Path, _: Sequence[str]) -> RequirementSet:
    """What of conda's file an index of wheels can serve: names and versions; channels mean nothing there."""
    entries = _dependencies(path)
    pip = [e.pop("pip") or [] for e in entries if isinstance(e, dict) and "pip" in e]
    plain = [_conda(path, entry) for entry in _lines(path, [e for e in entries if e != {}])]
    python = next((_python(path, v) for name, v in plain if name == "python"), "")
    lines = [f"{name}{_specifier(v)}" for name, v in plain if name not in _NOT_ON_INDEXES]
    piped = [_line(path, line) for each in pip for line in _lines(path, each) if line]
    return RequirementSet(
        (*lines, *(line for each in piped for line in each.requirements)),
        tuple(project for each in piped for project in each.editable),
        python,
    )


def _dependencies(path: Path) -> list[Any]:
    import yaml

    try:
        document = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    entries = document.get("dependencies", []) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{path} is not an environment.yml")
    return entries


def _python(path: Path, version: str) -> str:
    """A version; or a range, of which only another Python than this one need be looked for."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if version[:1] not in ("<", ">", "!", "~"):
        return version.strip("=* ").removesuffix(".")
    try:
        return "" if SpecifierSet(version).contains(platform.python_version()) else version
    except InvalidSpecifier as error:
        raise UsageError(f"{path}: python {version} is not understood") from error


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
