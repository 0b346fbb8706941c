"""Records which users depend on which layers, in files that every user can read, because children may be private.

Before an environment gets a layer, a mark (an empty file) <root>/<user>/.uses/<owner>/<layer> is created for each
parent layer of another user. Owners read these directories before they remove environments or collect garbage, and
keep marked layers. A superfluous mark does no harm except that a layer is kept longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from haienv.names import is_layer, is_name
from haienv.store.layout import DEPENDENCIES_DIR, LAYERS_DIR, Home
from haienv.store.records import Parent
from haienv.store.registry import list_owners, read_layer
from haienv.store.transaction import world_readable
from haienv.store.untrusted_io import list_entries


def create_marks(home: Home, parents: Iterable[Parent]) -> None:
    """Mark the layers of other users among the parents, before a layer of the caller depends on them."""
    with world_readable():
        for mark in _marks_of(home, parents):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def _marks_of(home: Home, parents: Iterable[Parent]) -> list[Path]:
    return [
        home.user_dir / DEPENDENCIES_DIR / p.owner / p.layer
        for p in parents
        if p.owner != home.user
    ]


def find_dependents(home: Home) -> dict[str, list[str]]:
    """Return the caller's layers on which other users depend, with the names of these users."""
    users_by_layer: dict[str, list[str]] = {}
    for user in list_owners(home):
        for entry in list_entries(home.root / user / DEPENDENCIES_DIR / home.user):
            if user != home.user and is_layer(entry.name):
                users_by_layer.setdefault(entry.name, []).append(user)
    return users_by_layer


def remove_stale_marks(home: Home) -> None:
    """Delete the caller's marks that no layer needs any more. The caller must hold the lease."""
    if existing := list_existing_marks(home):
        for mark in existing - list_needed_marks(home):
            mark.unlink(missing_ok=True)


def list_needed_marks(home: Home) -> set[Path]:
    """Return the marks that the caller's layers need, including layers that no environment uses any more."""
    names = [e.name for e in list_entries(home.user_dir / LAYERS_DIR) if is_layer(e.name)]
    layers = filter(None, (read_layer(home, home.user, name) for name in names))
    return {mark for layer in layers for mark in _marks_of(home, layer.parents)}


def list_existing_marks(home: Home) -> set[Path]:
    """Return the marks that the caller has."""
    folders = [e for e in list_entries(home.user_dir / DEPENDENCIES_DIR) if is_name(e.name)]
    return {Path(each.path) for folder in folders for each in list_entries(folder.path)}
