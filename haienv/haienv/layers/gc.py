"""Deletes layers and prefixes of conda some days after their last use, because programs may still run in them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from haienv.backends.conda import DONE_MARK
from haienv.names import is_layer
from haienv.store.layout import CONDA_DIR, LAST_USED_FILE, LAYER_FILE, LAYERS_DIR, Home
from haienv.store.registry import list_environments_in_root, read_layer
from haienv.store.reverse_dependencies import find_dependents, remove_stale_marks
from haienv.store.transaction import delete_tree, hold_lease, move_to_trash, restore_from_trash
from haienv.store.untrusted_io import list_entries, read_text_or_empty


@dataclass(frozen=True, slots=True)
class Garbage:
    """A layer, or a prefix of conda, that nothing uses. `days` have passed since its last use."""

    path: Path
    size_bytes: int
    days: float


def find_garbage(home: Home, days: float) -> list[Garbage]:
    """Return the layers and prefixes of conda that no environment has used for `days`."""
    used = find_used_layers(home)
    garbage = []
    for entry in list_entries(home.user_dir / LAYERS_DIR):
        path = Path(entry.path)
        if is_layer(entry.name) and entry.name not in used:
            age = _age_days(path)
            if age >= days:
                garbage.append(Garbage(path, count_freed_bytes(path), age))
    return garbage + _find_unused_prefixes(home, days)


def _find_unused_prefixes(home: Home, days: float) -> list[Garbage]:
    """Return the prefixes whose paths occur in no layer record and that have been complete for `days`."""
    layers = list_entries(home.user_dir / LAYERS_DIR)
    records = [read_text_or_empty(Path(layer.path) / LAYER_FILE) for layer in layers]
    garbage = []
    for entry in list_entries(home.user_dir / CONDA_DIR):
        path, age = Path(entry.path), _age_days(Path(entry.path), DONE_MARK)
        if age >= days and not any(entry.path in record for record in records):
            garbage.append(Garbage(path, count_freed_bytes(path), age))
    return garbage


def _age_days(path: Path, mark: str = LAST_USED_FILE) -> float:
    try:
        return (time.time() - (path / mark).stat().st_mtime) / 86400
    except OSError:
        return 0.0


def count_freed_bytes(path: Path) -> int:
    """Count the bytes that deleting a directory would free. Files with other hard links do not count."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            size += status.st_size if status.st_nlink == 1 else 0
    return size


def delete_garbage(home: Home, garbage: Sequence[Garbage]) -> None:
    """Delete garbage, except layers and prefixes that have come into use since."""
    with hold_lease(home):
        layer_ids = [each.path.name for each in garbage if each.path.parent.name == LAYERS_DIR]
        unused_prefixes = {each.path for each in _find_unused_prefixes(home, 0)}
        prefixes = [each.path for each in garbage if each.path in unused_prefixes]
        trashed = move_unused_to_trash(home, layer_ids)
        trashed += [move_to_trash(home, path) for path in prefixes]
    for path in trashed:
        delete_tree(path)


def move_unused_to_trash(home: Home, layer_ids: Iterable[str]) -> list[Path]:
    """Move unused layers to the trash. The caller must hold the lease, and delete the returned paths after its end."""
    used = find_used_layers(home)
    unused = [home.layer(home.user, each) for each in layer_ids if each not in used]
    trashed = {path: move_to_trash(home, path) for path in unused if path.is_dir()}
    for path in trashed.keys() & {home.layer(home.user, each) for each in find_dependents(home)}:
        restore_from_trash(
            trashed[path], path
        )  # another user has just begun to depend on this layer
    remove_stale_marks(home)
    return list(trashed.values())


def find_used_layers(home: Home) -> set[str]:
    """Return the caller's layers that any environment uses or extends, now or in its previous version."""
    used = set(find_dependents(home))
    for each in list_environments_in_root(home):
        previous = (
            read_layer(home, each.owner, each.metadata.previous) if each.metadata.previous else None
        )
        if each.owner == home.user:
            used |= {each.layer_id, each.metadata.previous}
        for layer in filter(None, (each.layer, previous)):
            used |= {p.layer for p in layer.parents if p.owner == home.user}
    return used
