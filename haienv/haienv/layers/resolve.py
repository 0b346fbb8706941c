"""Which versions: asks the resolver, with what the parents have as constraints."""

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
    """What the resolver chose: own distributions and those of parents."""

    pins: tuple[Pin, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """Name to version."""
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
    """Versions for what is wanted; what is installed stays unless it is to be upgraded or does not fit."""
    if not requirements and not editable:
        return Resolution()
    provided = base.versions
    parsed = [parse_requirement(line) for line in requirements]
    hidden = {pin.name for pin in previous_pins}  # by an own version, which stays preferred
    pinned = {} if force else parent_constraints(provided, parsed)
    pinned = {name: version for name, version in pinned.items() if name not in hidden}
    requirements_file, constraints_file, output_file = (
        work_dir / n for n in ("wanted.in", "constraints.in", "answer.txt")
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
    """Versions for a Python that need not be here, on top of what is below."""
    if not requirements:
        return ()
    pinned = parent_constraints(below, [parse_requirement(line) for line in requirements])
    requirements_file, constraints_file, output_file = (
        work_dir / n for n in ("wanted.in", "constraints.in", "answer.txt")
    )
    _write(requirements_file, requirements)
    _write(constraints_file, [f"{name}=={version}" for name, version in pinned.items()])
    return parse_pins(uv.resolve_for(version, requirements_file, constraints_file, output_file))


def parent_constraints(
    provided: Mapping[str, str], parsed: Iterable[Requirement]
) -> dict[str, str]:
    """What the parents have, less what is asked for in another version."""
    pinned = dict(provided)
    for each in parsed:
        name = normalize_name(each.name)
        if name in pinned and not _fits(each, pinned[name]):
            del pinned[name]
    return pinned


def _fits(parsed: Requirement, version: str) -> bool:
    from packaging.version import InvalidVersion

    try:
        return not parsed.url and parsed.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _stub_wheels(sites: Iterable[Path], folder: Path) -> list[Path]:
    """No index has what a parent built by itself: wheels of metadata only tell the resolver that it is there."""
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
