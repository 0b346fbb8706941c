"""What goes, and what must stay for others: names go at once, layers when nothing stands on them or runs in them."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from haienv.errors import Refused
from haienv.history import note
from haienv.layers.reverse_dependencies import forget, others_on
from haienv.layout import Home
from haienv.operations import mine, require_there
from haienv.registry import Environment, children, everything, layer_at, of_owner
from haienv.transaction import committing, delete, put_away


def remove(
    home: Home, environment: Environment, force: bool = False, busy: Set[str] = frozenset()
) -> None:
    """Not listed from one moment to the next; then its files go, unless something else needs them.

    `busy`: layers that programs run in; they are left to gc.
    """
    mine(home, environment)
    if not force and (below := _dependants(home, environment)):
        raise Refused(
            f"{environment} is extended by {', '.join(below)}",
            "remove those first; with --force its name goes, and its files when they do",
        )
    layers = {environment.layer_id, environment.label.previous} - {"", *busy}
    with committing(home):
        require_there(environment)
        gone = [put_away(home, environment.directory)]
        note(home, "remove", environment.name)
        gone += take(home, layers)
    for path in gone:
        delete(path)


def _dependants(home: Home, environment: Environment) -> list[str]:
    """Environments that extend this one; of those that are hidden from the caller, whose they are."""
    layer = environment.layer_id
    named = {e.name for e in of_owner(home, environment.owner) if e.layer_id == layer}
    if not layer or named - {environment.name}:
        return []
    seen = children(home, environment.owner, frozenset({layer}))
    hidden = set(others_on(home).get(layer, ())) - {each.owner for each in seen}
    return [*map(str, seen), *(f"one of {user}'s" for user in sorted(hidden))]


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
