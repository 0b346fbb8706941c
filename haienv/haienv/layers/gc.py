"""Layers that no environment has any more: programs may still run in them, so they stay for some days."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from haienv.backends.conda import DONE
from haienv.names import is_layer
from haienv.store.layout import CONDA, LAYERS, RECORD, USED, Home
from haienv.store.registry import everything, layer_at
from haienv.store.reverse_dependencies import forget, others_on
from haienv.store.transaction import committing, delete, put_away
from haienv.store.untrusted_io import Unreadable, entries, read_text


@dataclass(frozen=True, slots=True)
class Garbage:
    """A layer that nothing uses."""

    path: Path
    size_bytes: int
    days: float


def garbage(home: Home, days: float) -> list[Garbage]:
    """Layers that no environment has had for some days, nor stands on: programs may have run on in them until then."""
    used = used_layers(home)
    found = []
    for entry in entries(home.own / LAYERS):
        path = Path(entry.path)
        if is_layer(entry.name) and entry.name not in used:
            age = _age_days(path)
            if age >= days:
                found.append(Garbage(path, freed_bytes(path), age))
    return found + _unused_prefixes(home, days)


def _unused_prefixes(home: Home, days: float) -> list[Garbage]:
    texts = [_record(Path(entry.path)) for entry in entries(home.own / LAYERS)]
    paths = [Path(e.path) for e in entries(home.own / CONDA) if not any(e.path in t for t in texts)]
    aged = [(path, _age_days(path, DONE)) for path in paths]
    return [Garbage(path, freed_bytes(path), age) for path, age in aged if age >= days]


def _record(layer: Path) -> str:
    try:
        return read_text(layer / RECORD)
    except Unreadable:
        return ""


def _age_days(path: Path, mark: str = USED) -> float:
    try:
        return (time.time() - (path / mark).stat().st_mtime) / 86400
    except OSError:
        return 0.0


def freed_bytes(path: Path) -> int:
    """Bytes that deleting it would free: files with other names elsewhere stay."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            facts = os.lstat(os.path.join(folder, name))
            size += facts.st_size if facts.st_nlink == 1 else 0
    return size


def collect(home: Home, found: Sequence[Garbage]) -> None:
    """Delete them, unless one came into use meanwhile."""
    with committing(home):
        layers = [each.path for each in found if each.path.parent.name == LAYERS]
        unused = {each.path for each in _unused_prefixes(home, 0)}
        prefixes = [each.path for each in found if each.path in unused]
        gone = take(home, [path.name for path in layers])
        gone += [put_away(home, path) for path in prefixes]
    for path in gone:
        delete(path)


def take(home: Home, layer_ids: Iterable[str]) -> list[Path]:
    """Put away those layers that nothing uses; what is returned is to be deleted. Under the lease."""
    used = used_layers(home)
    unused = [home.layer(home.user, each) for each in layer_ids if each not in used]
    away = {path: put_away(home, path) for path in unused if path.is_dir()}
    for path in away.keys() & {home.layer(home.user, each) for each in others_on(home)}:
        (away[path] / "it").rename(path)  # somebody came to stand on it just now
    forget(home)
    return list(away.values())


def used_layers(home: Home) -> set[str]:
    """The caller's layers that an environment of anybody has, had before, or stands on now or then."""
    used = set(others_on(home))
    for each in everything(home):
        before = layer_at(home, each.owner, each.label.previous) if each.label.previous else None
        if each.owner == home.user:
            used |= {each.layer_id, each.label.previous}
        for layer in filter(None, (each.layer, before)):
            used |= {p.layer for p in layer.parents if p.owner == home.user}
    return used
