"""Chooses versions: runs the resolver with the packages of the parents as constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.backends.uv import Uv
from haienv.layers.base import Base
from haienv.layers.installed import dist_infos, is_not_from_index, read_metadata
from haienv.requirements.requirement_set import parse_requirement, project_url
from haienv.store.lock import Pin, normalize_name, parse_pins

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
    hidden = {
        pin.name for pin in previous_pins
    }  # the layer has its own version, which is preferred
    pinned = {} if force else parent_constraints(provided, parsed)
    pinned = {name: version for name, version in pinned.items() if name not in hidden}
    requirements_file, constraints_file, output_file = (
        work_dir / n for n in ("requirements.in", "constraints.in", "output.txt")
    )
    _write(
        requirements_file, [*requirements, *(f"-e {project_url(project)}" for project in editable)]
    )
    _write(constraints_file, [f"{name}=={version}" for name, version in pinned.items()])
    preferred = [f"{name}=={version}" for name, version in provided.items()] if force else []
    preferred += [] if upgrade else [pin.text for pin in previous_pins if "://" not in pin.version]
    _write(output_file, preferred)
    find_links = _stub_wheels(base.sites, work_dir / "stubs")
    upgrade_all = upgrade and not force
    return Resolution(
        parse_pins(
            uv.resolve(
                python, requirements_file, constraints_file, output_file, find_links, upgrade_all
            )
        )
    )


def resolve_for(
    uv: Uv, requirements: Sequence[str], version: str, below: Mapping[str, str], work_dir: Path
) -> tuple[Pin, ...]:
    """Resolve for a Python version that need not be installed here; `below` are the versions of the parents."""
    if not requirements:
        return ()
    pinned = parent_constraints(below, [parse_requirement(line) for line in requirements])
    requirements_file, constraints_file, output_file = (
        work_dir / n for n in ("requirements.in", "constraints.in", "output.txt")
    )
    _write(requirements_file, requirements)
    _write(constraints_file, [f"{name}=={version}" for name, version in pinned.items()])
    return parse_pins(uv.resolve_for(version, requirements_file, constraints_file, output_file))


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


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
