"""Which versions: asks the resolver, with what the parents have as constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haienv.backends.uv import Uv
from haienv.layers.base import Base
from haienv.layers.installed import from_elsewhere, infos, metadata
from haienv.requirements.requirement_set import requirement, url_of
from haienv.store.lock import Pin, normal, pins_of

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
    wanted: Sequence[str],
    editable: Sequence[str],
    before: Sequence[Pin],
    work: Path,
    python: Path,
    *,
    upgrade: bool,
    force: bool,
) -> Resolution:
    """Versions for what is wanted; what is installed stays unless it is to be upgraded or does not fit."""
    if not wanted and not editable:
        return Resolution()
    provided = base.versions
    asked = [requirement(line) for line in wanted]
    hidden = {pin.name for pin in before}  # by an own version, which stays preferred
    kept = {} if force else constraints(provided, asked)
    kept = {name: version for name, version in kept.items() if name not in hidden}
    asking, keeping, answering = (work / n for n in ("wanted.in", "constraints.in", "answer.txt"))
    _write(asking, [*wanted, *(f"-e {url_of(project)}" for project in editable)])
    _write(keeping, [f"{name}=={version}" for name, version in kept.items()])
    preferred = [f"{name}=={version}" for name, version in provided.items()] if force else []
    preferred += [] if upgrade else [pin.text for pin in before if "://" not in pin.version]
    _write(answering, preferred)
    places = _stubs(base.sites, work / "stubs")
    newer = upgrade and not force
    return Resolution(pins_of(uv.resolve(python, asking, keeping, answering, places, newer)))


def resolve_for(
    uv: Uv, wanted: Sequence[str], version: str, below: Mapping[str, str], work: Path
) -> tuple[Pin, ...]:
    """Versions for a Python that need not be here, on top of what is below."""
    if not wanted:
        return ()
    kept = constraints(below, [requirement(line) for line in wanted])
    asking, keeping, answering = (work / n for n in ("wanted.in", "constraints.in", "answer.txt"))
    _write(asking, wanted)
    _write(keeping, [f"{name}=={version}" for name, version in kept.items()])
    return pins_of(uv.resolve_for(version, asking, keeping, answering))


def constraints(provided: Mapping[str, str], asked: Iterable[Requirement]) -> dict[str, str]:
    """What the parents have, less what is asked for in another version."""
    kept = dict(provided)
    for each in asked:
        name = normal(each.name)
        if name in kept and not _fits(each, kept[name]):
            del kept[name]
    return kept


def _fits(asked: Requirement, version: str) -> bool:
    from packaging.version import InvalidVersion

    try:
        return not asked.url and asked.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _stubs(sites: Iterable[Path], folder: Path) -> list[Path]:
    """No index has what a parent built by itself: wheels of metadata only tell the resolver that it is there."""
    import zipfile

    found = [i for site in sites for i in infos(site) if from_elsewhere(i[2])]
    for name, version, info in found:
        folder.mkdir(exist_ok=True)
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", metadata(info))
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return [folder] if found else []


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
