"""Layers that no environment has any more: programs may still run in them, so they stay for some days."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from haienv.backends.conda import DONE
from haienv.layers.removal import take, used_layers
from haienv.layout import CONDA, LAYERS, RECORD, USED, Home
from haienv.names import is_layer
from haienv.transaction import committing, delete, put_away
from haienv.untrusted_io import Unreadable, entries, read_text


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
