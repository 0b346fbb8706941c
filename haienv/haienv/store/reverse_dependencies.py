"""Who stands on whose layers, told where everybody may read it: a private child is hidden from its parent's owner.

Before an environment gets a layer, an empty file <root>/<user>/.uses/<owner>/<layer> is made for each layer of somebody
else below it. Owners keep what is named so: to remove an environment, and to collect garbage, they look into all of
these directories. A name too many keeps a layer too long, nothing worse.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from haienv.names import is_layer, is_name
from haienv.store.layout import LAYERS, USES, Home
from haienv.store.records import Parent
from haienv.store.registry import layer_at, owners
from haienv.store.transaction import readable
from haienv.store.untrusted_io import entries


def tell(home: Home, parents: Iterable[Parent]) -> None:
    """Something of the caller's is about to stand on these."""
    with readable():
        for mark in _marks(home, parents):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def _marks(home: Home, parents: Iterable[Parent]) -> list[Path]:
    return [home.own / USES / p.owner / p.layer for p in parents if p.owner != home.user]


def others_on(home: Home) -> dict[str, list[str]]:
    """The caller's layers that environments of others stand on, and whose."""
    found: dict[str, list[str]] = {}
    for user in owners(home):
        for entry in entries(home.root / user / USES / home.user):
            if user != home.user and is_layer(entry.name):
                found.setdefault(entry.name, []).append(user)
    return found


def forget(home: Home) -> None:
    """Take away marks that nothing needs any more. Under the lease."""
    if there := made(home):
        for mark in there - needed(home):
            mark.unlink(missing_ok=True)


def needed(home: Home) -> set[Path]:
    """Marks that the caller's layers need, also those that no environment has any more."""
    names = [e.name for e in entries(home.own / LAYERS) if is_layer(e.name)]
    layers = filter(None, (layer_at(home, home.user, name) for name in names))
    return {mark for layer in layers for mark in _marks(home, layer.parents)}


def made(home: Home) -> set[Path]:
    """Marks that there are."""
    folders = [e for e in entries(home.own / USES) if is_name(e.name)]
    return {Path(each.path) for folder in folders for each in entries(folder.path)}
