"""Who stands on whose layers, told where everybody may read it: a private child is hidden from its parent's owner.

Before an environment gets a layer, an empty file <root>/<user>/.uses/<owner>/<layer> is made for each layer of somebody
else below it. Owners keep what is named so: to remove an environment, and to collect garbage, they look into all of
these directories. A name too many keeps a layer too long, nothing worse.
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
    """Something of the caller's is about to stand on these."""
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
    """The caller's layers that environments of others stand on, and whose."""
    found: dict[str, list[str]] = {}
    for user in owners(home):
        for entry in entries(home.root / user / DEPENDENCIES_DIR / home.user):
            if user != home.user and is_layer(entry.name):
                found.setdefault(entry.name, []).append(user)
    return found


def remove_stale_marks(home: Home) -> None:
    """Take away marks that nothing needs any more. Under the lease."""
    if there := existing_marks(home):
        for mark in there - needed_marks(home):
            mark.unlink(missing_ok=True)


def needed_marks(home: Home) -> set[Path]:
    """Marks that the caller's layers need, also those that no environment has any more."""
    names = [e.name for e in entries(home.user_dir / LAYERS_DIR) if is_layer(e.name)]
    layers = filter(None, (read_layer(home, home.user, name) for name in names))
    return {mark for layer in layers for mark in _marks(home, layer.parents)}


def existing_marks(home: Home) -> set[Path]:
    """Marks that there are."""
    folders = [e for e in entries(home.user_dir / DEPENDENCIES_DIR) if is_name(e.name)]
    return {Path(each.path) for folder in folders for each in entries(folder.path)}
