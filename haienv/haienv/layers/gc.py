"""Garbage collection of layers: unused ones stay for some days, since programs may still run in them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from haienv.backends.conda import DONE_MARK
from haienv.names import is_layer
from haienv.store.layout import CONDA_DIR, LAST_USED_FILE, LAYER_FILE, LAYERS_DIR, Home
from haienv.store.registry import list_root, read_layer
from haienv.store.reverse_dependencies import dependents, remove_stale_marks
from haienv.store.transaction import committing, delete_tree, move_to_trash
from haienv.store.untrusted_io import entries, text_or_empty


@dataclass(frozen=True, slots=True)
class Garbage:
    """A layer, or a prefix of conda, that nothing uses; `days` since its last use."""

    path: Path
    size_bytes: int
    days: float


def find_garbage(home: Home, days: float) -> list[Garbage]:
    """Layers and prefixes of conda that no environment has used for some days."""
    used = used_layers(home)
    found = []
    for entry in entries(home.user_dir / LAYERS_DIR):
        path = Path(entry.path)
        if is_layer(entry.name) and entry.name not in used:
            age = _age_days(path)
            if age >= days:
                found.append(Garbage(path, freed_bytes(path), age))
    return found + _unused_prefixes(home, days)


def _unused_prefixes(home: Home, days: float) -> list[Garbage]:
    texts = [
        text_or_empty(Path(entry.path) / LAYER_FILE)
        for entry in entries(home.user_dir / LAYERS_DIR)
    ]
    paths = [
        Path(e.path)
        for e in entries(home.user_dir / CONDA_DIR)
        if not any(e.path in t for t in texts)
    ]
    with_age = [(path, _age_days(path, DONE_MARK)) for path in paths]
    return [Garbage(path, freed_bytes(path), age) for path, age in with_age if age >= days]


def _age_days(path: Path, mark: str = LAST_USED_FILE) -> float:
    try:
        return (time.time() - (path / mark).stat().st_mtime) / 86400
    except OSError:
        return 0.0


def freed_bytes(path: Path) -> int:
    """Bytes that deleting a directory frees: files with hard links elsewhere do not count."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            facts = os.lstat(os.path.join(folder, name))
            size += facts.st_size if facts.st_nlink == 1 else 0
    return size


def delete_garbage(home: Home, found: Sequence[Garbage]) -> None:
    """Delete garbage, except what came into use since it was found."""
    with committing(home):
        layers = [each.path for each in found if each.path.parent.name == LAYERS_DIR]
        unused = {each.path for each in _unused_prefixes(home, 0)}
        prefixes = [each.path for each in found if each.path in unused]
        trashed = trash_unused(home, [path.name for path in layers])
        trashed += [move_to_trash(home, path) for path in prefixes]
    for path in trashed:
        delete_tree(path)


def trash_unused(home: Home, layer_ids: Iterable[str]) -> list[Path]:
    """Move unused layers to the trash; the caller must hold the lease, and delete the returned paths after it."""
    used = used_layers(home)
    unused = [home.layer(home.user, each) for each in layer_ids if each not in used]
    trashed = {path: move_to_trash(home, path) for path in unused if path.is_dir()}
    for path in trashed.keys() & {home.layer(home.user, each) for each in dependents(home)}:
        (trashed[path] / "it").rename(path)  # another user began to depend on it just now
    remove_stale_marks(home)
    return list(trashed.values())


def used_layers(home: Home) -> set[str]:
    """The caller's layers that any environment uses or extends, now or in its previous version."""
    used = set(dependents(home))
    for each in list_root(home):
        previous = (
            read_layer(home, each.owner, each.metadata.previous) if each.metadata.previous else None
        )
        if each.owner == home.user:
            used |= {each.layer_id, each.metadata.previous}
        for layer in filter(None, (each.layer, previous)):
            used |= {p.layer for p in layer.parents if p.owner == home.user}
    return used
