"""Chooses versions: runs the resolver with the packages of the parents as constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.backends.uv import ResolverFiles, Uv
from haienv.layers.base import Base
from haienv.layers.installed import dist_infos, is_not_from_index, read_metadata
from haienv.requirements.requirement_set import parse_requirement, project_url
from haienv.store.lock_file import Pin, normalize_name, parse_pins

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Resolution:
    """The pins that the resolver chose, including distributions that parents provide."""

    pins: tuple[Pin, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        return {pin.name: pin.version for pin in self.pins}


def resolve(
    uv: Uv,
    base: Base,
    requirements: Sequence[str],
    editable: Sequence[str],
    previous_pins: Sequence[Pin],
    work_dir: Path,
    python: Path,
    *,
    upgrade: bool,
    force: bool,
) -> Resolution:
    """Resolve requirements and projects in place.

    Installed versions stay unless `upgrade` is set or they do not fit. With `force`, versions of parents are
    preferred, not required.
    """
    if not requirements and not editable:
        return Resolution()
    provided = base.versions
    parsed = [parse_requirement(line) for line in requirements]
    pinned = {} if force else parent_constraints(provided, parsed)
    for pin in previous_pins:
        pinned.pop(pin.name, None)  # the layer has its own version, which is preferred
    preferred = [f"{name}=={version}" for name, version in provided.items()] if force else []
    preferred += [] if upgrade else [pin.text for pin in previous_pins if "://" not in pin.version]
    projects = [f"-e {project_url(project)}" for project in editable]
    files = _write_files(work_dir, [*requirements, *projects], pinned, preferred)
    find_links = _stub_wheels(base.sites, work_dir / "stubs")
    upgrade_all = ["--upgrade"] if upgrade and not force else []
    text = uv.resolve(files, "--python", str(python), *upgrade_all, extra_find_links=find_links)
    return Resolution(parse_pins(text))


def resolve_for(
    uv: Uv, requirements: Sequence[str], version: str, below: Mapping[str, str], work_dir: Path
) -> tuple[Pin, ...]:
    """Resolve for a Python version that need not be installed here; `below` are the versions of the parents."""
    if not requirements:
        return ()
    pinned = parent_constraints(below, [parse_requirement(line) for line in requirements])
    files = _write_files(work_dir, requirements, pinned)
    options = ("--python-version", version, "--python-platform", "linux")
    return parse_pins(uv.resolve(files, *options))


def parent_constraints(
    provided: Mapping[str, str], requirements: Iterable[Requirement]
) -> dict[str, str]:
    """The versions of the parents, without those that a requirement excludes."""
    pinned = dict(provided)
    for each in requirements:
        name = normalize_name(each.name)
        if name in pinned and not _fits(each, pinned[name]):
            del pinned[name]
    return pinned


def _fits(requirement: Requirement, version: str) -> bool:
    from packaging.version import InvalidVersion

    try:
        return not requirement.url and requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _stub_wheels(sites: Iterable[Path], folder: Path) -> list[Path]:
    """Wheels with metadata only, for distributions of parents that no index has: the resolver must find them."""
    import zipfile

    found = [i for site in sites for i in dist_infos(site) if is_not_from_index(i[2])]
    for name, version, info in found:
        folder.mkdir(exist_ok=True)
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", read_metadata(info))
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return [folder] if found else []


def _write_files(
    work_dir: Path,
    requirements: Iterable[str],
    pinned: Mapping[str, str],
    preferred: Iterable[str] = (),
) -> ResolverFiles:
    files = ResolverFiles(*(work_dir / f"{name}.txt" for name in ("input", "constraints", "pins")))
    constraints = [f"{name}=={version}" for name, version in pinned.items()]
    contents = (requirements, constraints, preferred)
    for path, lines in zip(
        (files.requirements, files.constraints, files.output), contents, strict=True
    ):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files
