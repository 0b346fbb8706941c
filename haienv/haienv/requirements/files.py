"""Reads requirements from requirements.txt, haienv locks, pyproject.toml and conda's environment.yml."""

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
    absolute_project,
    parse_requirement,
    project_directory,
)
from haienv.store.lock_file import (
    is_newer_format,
    logical_lines,
    normalize_name,
    parse_lock,
    parse_pins,
)
from haienv.store.records import path_fault

_CONDA_PIN = re.compile(r"(?:[\w-]+::)?([A-Za-z0-9._-]+)\s*(.*)")
_NOT_ON_INDEXES = ("pip", "python")


def collect_requirements(
    requested: RequirementSet, sources: Sequence[str], extras: Sequence[str]
) -> RequirementSet:
    """Combine requirements of the command line with those of files. Raises UsageError for all invalid ones."""
    for source in sources:
        added = read_requirements(Path(source), extras)
        if added.lock and (len(sources) > 1 or requested.requirements or requested.editable):
            raise UsageError(f"{source} is a lock: it cannot be combined with other requirements")
        requested = RequirementSet(
            requested.requirements + added.requirements,
            requested.editable + added.editable,
            requested.python or added.python,
            added.lock,
        )
    return _checked(requested)


def _checked(requested: RequirementSet) -> RequirementSet:
    if faults := list(filter(None, map(_project_fault, requested.editable))):
        raise UsageError("; ".join(faults))
    if requested.lock is None:
        for line in requested.requirements:
            parse_requirement(line)
    return replace(
        requested, requirements=tuple(dict.fromkeys(map(str.strip, requested.requirements)))
    )


def _project_fault(project: str) -> str:
    directory = project_directory(project)
    if "#" in directory:  # uv does not decode %23 either
        return f"{directory!r} cannot be installed in place: for uv a path ends at #; rename the directory"
    if not os.path.isdir(directory):
        return f"{directory!r} is not a directory, so there is no project to install in place"
    return path_fault(directory)


def read_requirements(path: Path, extras: Sequence[str] = ()) -> RequirementSet:
    """Read a file in the format that its name implies; `extras` select those of a pyproject.toml."""
    try:
        return _reader_for(path)(path, extras)
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply, or includes itself") from error


def _reader_for(path: Path) -> Callable[[Path, Sequence[str]], RequirementSet]:
    if path.suffix == ".toml":
        return _pyproject
    return _environment_yml if path.suffix in (".yml", ".yaml") else _requirements


def _read_text(path: Path) -> str:
    """Decode UTF-8 or UTF-16: Windows tools write a byte order mark, or UTF-16."""
    data = path.read_bytes()
    is_utf16 = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error


def _requirements(path: Path, _: Sequence[str] = ()) -> RequirementSet:
    text = _read_text(path)
    if lock := parse_lock(text):
        return RequirementSet(tuple(pin.text for pin in lock.pins), (), lock.python, lock)
    if is_newer_format(text):
        raise UsageError(f"{path} is a lock of a newer version of haienv", "update haienv")
    found = RequirementSet()
    for line in logical_lines(text):
        added = _parse_line(path, line)
        found = RequirementSet(
            found.requirements + added.requirements, found.editable + added.editable
        )
    if found.requirements and "--hash=" in text:
        pins = parse_pins(text)
        return replace(found, requirements=tuple(pin.text for pin in pins))
    return found


def _parse_line(path: Path, line: str) -> RequirementSet:
    option, _, value = line.replace("=", " ", 1).partition(" ") if line[0] == "-" else ("", "", "")
    match option:
        case "":
            return RequirementSet((line.split(" --hash")[0],))
        case "-r" | "--requirement":
            return _requirements(path.parent / value.strip())
        case "-e" | "--editable":
            return RequirementSet((), (absolute_project(value.strip(), path.parent),))
    raise UsageError(
        f"{path}: {line!r} is not supported",
        "set indexes with --index and --find-links, constraints with UV_CONSTRAINT=FILE",
    )


def _pyproject(path: Path, extras: Sequence[str]) -> RequirementSet:
    project = _project_table(path)
    optional = project.get("optional-dependencies", {})
    if not isinstance(optional, dict):
        raise UsageError(f"{path}: optional-dependencies is not a table")
    if unknown := [extra for extra in extras if extra not in optional]:
        raise UsageError(f"{path} has no extra {', '.join(unknown)}", f"it has: {list(optional)}")
    lines = _require_strings(path, project.get("dependencies", []))
    return RequirementSet((*lines, *_extra_lines(path, project, optional, extras)))


def _extra_lines(
    path: Path, project: Mapping[str, Any], optional: Mapping[str, Any], extras: Sequence[str]
) -> Iterator[str]:
    """Requirements of extras; an extra may include others of the same project, as its_name[other]."""
    by_normalized_name = {normalize_name(extra): extra for extra in optional}
    project_name = normalize_name(str(project.get("name", "")))
    pending = list(extras)
    for extra in pending:
        for line in _require_strings(path, optional[extra]):
            requirement = parse_requirement(line)
            if normalize_name(requirement.name) != project_name:
                yield line
                continue
            included = sorted(map(normalize_name, requirement.extras))
            extras_found = [by_normalized_name[e] for e in included if e in by_normalized_name]
            pending += [each for each in extras_found if each not in pending]


def _project_table(path: Path) -> dict[str, Any]:
    """The table [project] of a pyproject.toml, with static dependencies."""
    try:
        project = tomllib.loads(_read_text(path)).get("project")
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    if not isinstance(project, dict) or "dependencies" in str(project.get("dynamic")):
        raise UsageError(
            f"{path} has no static dependencies in [project]",
            "name packages, or install the project, as a package or in place with -e",
        )
    return project


def _require_strings(path: Path, values: object) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UsageError(f"{path}: expected a list of requirements, not {values!r:.80}")
    return values


def _environment_yml(path: Path, _: Sequence[str]) -> RequirementSet:
    """Names and versions of conda's file, to be found on an index of wheels; channels are ignored."""
    entries = _conda_entries(path)
    pip = [e.pop("pip") or [] for e in entries if isinstance(e, dict) and "pip" in e]
    plain = [
        _conda_pin(path, entry) for entry in _require_strings(path, [e for e in entries if e != {}])
    ]
    python = next((_python_version(path, v) for name, v in plain if name == "python"), "")
    lines = [f"{name}{_specifier(v)}" for name, v in plain if name not in _NOT_ON_INDEXES]
    piped = [
        _parse_line(path, line) for each in pip for line in _require_strings(path, each) if line
    ]
    return RequirementSet(
        (*lines, *(line for each in piped for line in each.requirements)),
        tuple(project for each in piped for project in each.editable),
        python,
    )


def _conda_entries(path: Path) -> list[Any]:
    import yaml

    try:
        document = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    entries = document.get("dependencies", []) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{path} is not an environment.yml")
    return entries


def _python_version(path: Path, version: str) -> str:
    """A version, or a range; empty if the running Python is in the range."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if version[:1] not in ("<", ">", "!", "~"):
        return version.strip("=* ").removesuffix(".")
    try:
        return "" if SpecifierSet(version).contains(platform.python_version()) else version
    except InvalidSpecifier as error:
        raise UsageError(f"{path}: python {version} is not a version or range") from error


def _conda_pin(path: Path, entry: str) -> tuple[str, str]:
    found = _CONDA_PIN.fullmatch(entry)
    if found is None:
        raise UsageError(f"{path}: {entry!r} is not a conda requirement")
    version = found[2].strip()
    if version.startswith("=") and not version.startswith("=="):
        # =1.26 and =1.26=build mean 1.26.*
        version = version[1:].split("=")[0] + ".*"
    return found[1], version.replace(".*.*", ".*")


def _specifier(version: str) -> str:
    return version if not version or version[0] in "<>=!~" else f"=={version}"
