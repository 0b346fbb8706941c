"""Records which users depend on which layers, in files that every user can read: children may be private.

Before an environment gets a layer, an empty mark file <root>/<user>/.uses/<owner>/<layer> is created for each layer of
another user below it. Owners read these directories before they remove environments or collect garbage, and keep
marked layers. A superfluous mark only keeps a layer longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from haienv.names import is_layer, is_name
from haienv.store.layout import DEPENDENCIES_DIR, LAYERS_DIR, Home
from haienv.store.records import Parent
from haienv.store.registry import owners, read_layer
from haienv.store.transaction import world_readable
from haienv.store.untrusted_io import entries


def create_marks(home: Home, parents: Iterable[Parent]) -> None:
    """Mark layers of other users, before a layer of the caller depends on them."""
    with world_readable():
        for mark in _marks(home, parents):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def _marks(home: Home, parents: Iterable[Parent]) -> list[Path]:
    return [
        home.user_dir / DEPENDENCIES_DIR / p.owner / p.layer
        for p in parents
        if p.owner != home.user
    ]


def dependents(home: Home) -> dict[str, list[str]]:
    """The caller's layers that other users depend on, with the names of these users."""
    found: dict[str, list[str]] = {}
    for user in owners(home):
        for entry in entries(home.root / user / DEPENDENCIES_DIR / home.user):
            if user != home.user and is_layer(entry.name):
                found.setdefault(entry.name, []).append(user)
    return found


def remove_stale_marks(home: Home) -> None:
    """Delete marks that no layer needs any more; the caller holds the lease."""
    if existing := existing_marks(home):
        for mark in existing - needed_marks(home):
            mark.unlink(missing_ok=True)


def needed_marks(home: Home) -> set[Path]:
    """Marks that the caller's layers need, including layers that no environment uses any more."""
    names = [e.name for e in entries(home.user_dir / LAYERS_DIR) if is_layer(e.name)]
    layers = filter(None, (read_layer(home, home.user, name) for name in names))
    return {mark for layer in layers for mark in _marks(home, layer.parents)}


def existing_marks(home: Home) -> set[Path]:
    """Marks that the caller has."""
    folders = [e for e in entries(home.user_dir / DEPENDENCIES_DIR) if is_name(e.name)]
    return {Path(each.path) for folder in folders for each in entries(folder.path)}
