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
from haienv.store.records import path_fault
from haienv.store.requirements_lock import (
    is_newer_format,
    normalize_name,
    parse_lock,
    parse_pins,
    split_logical_lines,
)

_CONDA_PIN = re.compile(r"(?:[\w-]+::)?([A-Za-z0-9._-]+)\s*(.*)")
_NOT_ON_INDEXES = ("pip", "python")


def collect_requirements(
    requested: RequirementSet, sources: Sequence[str], extras: Sequence[str]
) -> RequirementSet:
    """Combine the requirements of the command line with those of files. Raise UsageError if one is invalid."""
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
    return _validate(requested)


def _validate(requested: RequirementSet) -> RequirementSet:
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
    if "#" in directory:  # %23 does not help, because uv does not decode it
        return f"{directory!r} cannot be installed in place: for uv a path ends at #; rename the directory"
    if not os.path.isdir(directory):
        return f"{directory!r} is not a directory, so there is no project to install in place"
    return path_fault(directory)


def read_requirements(path: Path, extras: Sequence[str] = ()) -> RequirementSet:
    """Read a file in the format that its name implies. `extras` are names of extras of a pyproject.toml."""
    try:
        return _reader_for(path)(path, extras)
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply, or includes itself") from error


def _reader_for(path: Path) -> Callable[[Path, Sequence[str]], RequirementSet]:
    if path.suffix == ".toml":
        return _read_pyproject
    return _read_environment_yml if path.suffix in (".yml", ".yaml") else _read_requirements_txt


def _read_text(path: Path) -> str:
    """Read a file in UTF-8 or UTF-16. Tools on Windows write UTF-16, or UTF-8 with a byte order mark."""
    data = path.read_bytes()
    is_utf16 = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error


def _read_requirements_txt(path: Path, _: Sequence[str] = ()) -> RequirementSet:
    text = _read_text(path)
    if lock := parse_lock(text):
        return RequirementSet(tuple(pin.text for pin in lock.pins), (), lock.python, lock)
    if is_newer_format(text):
        raise UsageError(f"{path} is a lock of a newer version of haienv", "update haienv")
    parts = [_parse_line(path, line) for line in split_logical_lines(text)]
    requirements = tuple(line for part in parts for line in part.requirements)
    if requirements and "--hash=" in text:
        requirements = tuple(pin.text for pin in parse_pins(text))
    return RequirementSet(requirements, tuple(each for part in parts for each in part.editable))


def _parse_line(path: Path, line: str) -> RequirementSet:
    """Parse a line of requirements.txt. Raise UsageError for unsupported options."""
    option, _, value = line.replace("=", " ", 1).partition(" ") if line[0] == "-" else ("", "", "")
    match option:
        case "":
            return RequirementSet((line.split(" --hash")[0],))
        case "-r" | "--requirement":
            return _read_requirements_txt(path.parent / value.strip())
        case "-e" | "--editable":
            return RequirementSet((), (absolute_project(value.strip(), path.parent),))
    raise UsageError(
        f"{path}: {line!r} is not supported",
        "set indexes with --index and --find-links, constraints with UV_CONSTRAINT=FILE",
    )


def _read_pyproject(path: Path, extras: Sequence[str]) -> RequirementSet:
    project = _read_project_table(path)
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
    """Yield the requirements of extras. An extra may include others of the same project, as project[other]."""
    extras_by_name = {normalize_name(extra): extra for extra in optional}
    project_name = normalize_name(str(project.get("name", "")))
    pending = list(extras)
    for extra in pending:
        for line in _require_strings(path, optional[extra]):
            requirement = parse_requirement(line)
            if normalize_name(requirement.name) != project_name:
                yield line
                continue
            names = sorted(map(normalize_name, requirement.extras))
            included = [extras_by_name[name] for name in names if name in extras_by_name]
            pending += [extra for extra in included if extra not in pending]


def _read_project_table(path: Path) -> dict[str, Any]:
    """Return the table [project] of a pyproject.toml. Raise UsageError unless its dependencies are static."""
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


def _read_environment_yml(path: Path, _: Sequence[str]) -> RequirementSet:
    """Read an environment.yml of conda as requirements for an index of wheels. Channels are ignored."""
    entries = _read_conda_entries(path)
    pip_lists = [e.pop("pip") or [] for e in entries if isinstance(e, dict) and "pip" in e]
    conda_lines = _require_strings(path, [e for e in entries if e != {}])
    pins = [_parse_conda_pin(path, line) for line in conda_lines]
    python = next((_parse_python(path, version) for name, version in pins if name == "python"), "")
    requirements = [f"{name}{_specifier(v)}" for name, v in pins if name not in _NOT_ON_INDEXES]
    pip_lines = (line for lines in pip_lists for line in _require_strings(path, lines) if line)
    pip_parts = [_parse_line(path, line) for line in pip_lines]
    return RequirementSet(
        (*requirements, *(line for part in pip_parts for line in part.requirements)),
        tuple(project for part in pip_parts for project in part.editable),
        python,
    )


def _read_conda_entries(path: Path) -> list[Any]:
    import yaml

    try:
        document = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    entries = document.get("dependencies", []) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{path} is not an environment.yml")
    return entries


def _parse_python(path: Path, version: str) -> str:
    """Return the requested version of Python, or range of versions; empty if the running Python is in the range."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if version[:1] not in ("<", ">", "!", "~"):
        return version.strip("=* ").removesuffix(".")
    try:
        return "" if SpecifierSet(version).contains(platform.python_version()) else version
    except InvalidSpecifier as error:
        raise UsageError(f"{path}: python {version} is not a version or range") from error


def _parse_conda_pin(path: Path, entry: str) -> tuple[str, str]:
    """Return name and version of a line such as numpy=1.26 or conda-forge::numpy>=1."""
    match = _CONDA_PIN.fullmatch(entry)
    if match is None:
        raise UsageError(f"{path}: {entry!r} is not a conda requirement")
    version = match[2].strip()
    if version.startswith("=") and not version.startswith("=="):
        # =1.26 and =1.26=build mean 1.26.*
        version = version[1:].split("=")[0] + ".*"
    return match[1], version.replace(".*.*", ".*")


def _specifier(version: str) -> str:
    return version if not version or version[0] in "<>=!~" else f"=={version}"
