"""Chooses versions of packages: runs the resolver with the packages of the parents as constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.backends.uv import ResolverFiles, Uv
from haienv.layers.base import Base
from haienv.layers.installed import is_not_from_index, list_dist_infos, read_metadata
from haienv.requirements.requirement_set import parse_requirement, project_url
from haienv.store.requirements_lock import Pin, normalize_name, parse_pins

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

    Previous versions stay if they fit, unless `upgrade` is set. Versions of parents are required, or with `force`
    only preferred.
    """
    if not requirements and not editable:
        return Resolution()
    provided = base.inherited_versions
    parsed = [parse_requirement(line) for line in requirements]
    pinned = {} if force else select_parent_constraints(provided, parsed)
    for pin in previous_pins:
        pinned.pop(pin.name, None)  # the layer's own version is preferred below
    preferred = [f"{name}=={version}" for name, version in provided.items()] if force else []
    preferred += [] if upgrade else [pin.text for pin in previous_pins if "://" not in pin.version]
    projects = [f"-e {project_url(project)}" for project in editable]
    files = _write_files(work_dir, [*requirements, *projects], pinned, preferred)
    find_links = _write_stub_wheels(base.sites, work_dir / "stubs")
    upgrade_all = ["--upgrade"] if upgrade and not force else []
    text = uv.resolve(files, "--python", str(python), *upgrade_all, extra_find_links=find_links)
    return Resolution(parse_pins(text))


def resolve_for_version(
    uv: Uv, requirements: Sequence[str], version: str, provided: Mapping[str, str], work_dir: Path
) -> tuple[Pin, ...]:
    """Resolve requirements for a Python version that need not be installed here."""
    if not requirements:
        return ()
    pinned = select_parent_constraints(provided, [parse_requirement(line) for line in requirements])
    files = _write_files(work_dir, requirements, pinned)
    options = ("--python-version", version, "--python-platform", "linux")
    return parse_pins(uv.resolve(files, *options))


def select_parent_constraints(
    provided: Mapping[str, str], requirements: Iterable[Requirement]
) -> dict[str, str]:
    """Return the versions that parents provide, without those that a requirement excludes."""
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


def _write_stub_wheels(sites: Iterable[Path], folder: Path) -> list[Path]:
    """Write wheels that contain only metadata, for distributions of parents that no index has.

    Without them, the resolver would not find these distributions. Return the directory in a list, or an empty list.
    """
    import zipfile

    unlisted = [d for site in sites for d in list_dist_infos(site) if is_not_from_index(d[2])]
    for name, version, info in unlisted:
        folder.mkdir(exist_ok=True)
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", read_metadata(info))
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return [folder] if unlisted else []


def _write_files(
    work_dir: Path,
    requirements: Iterable[str],
    pinned: Mapping[str, str],
    preferred: Iterable[str] = (),
) -> ResolverFiles:
    """Write the input files of the resolver."""
    files = ResolverFiles(*(work_dir / f"{name}.txt" for name in ("input", "constraints", "pins")))
    constraints = [f"{name}=={version}" for name, version in pinned.items()]
    contents = (requirements, constraints, preferred)
    for path, lines in zip(
        (files.requirements, files.constraints, files.output), contents, strict=True
    ):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files
