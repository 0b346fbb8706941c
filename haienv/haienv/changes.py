"""What users do with environments. Each change has one commit point: backend/docs/environments.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from haienv import foundation as ground
from haienv.backends.uv import Uv
from haienv.errors import Broken, Busy, Denied, Exists, NotFound, Refused
from haienv.foundation import Foundation
from haienv.layers import Built, Tell, Wish, build
from haienv.layout import CURRENT, LABEL, RECORD, USED, Home
from haienv.lock import parse, pins_of
from haienv.names import check_name
from haienv.records import Label, to_toml
from haienv.registry import Environment, children, everything, layer_at, missing, of_owner, read
from haienv.sharing import check, open_layer, show
from haienv.transaction import (
    building,
    committing,
    delete,
    publish,
    put_away,
    replace_link,
    replace_text,
)


def now() -> datetime:
    """To the second."""
    return datetime.now(UTC).replace(microsecond=0)


def create(
    home: Home, uv: Uv, name: str, base: Foundation, wish: Wish, label: Label, tell: Tell
) -> Environment | None:
    """A new environment; None after a dry run."""
    _free(home, check_name(name))
    check(home, label, base.parents)
    with building(home) as work:
        built = build(home, uv, base, wish, work, tell)
        if built is None:
            return None
        _publish(home, work, name, built.layer_id, replace(label, created=now(), updated=now()))
    return _there(home, name)


def clone(home: Home, source: Environment, name: str) -> Environment:
    """Another name for the same packages, free to change by itself."""
    _free(home, check_name(name))
    if not source.ready:
        raise Broken(f"environment {source} is broken: {source.fault}", "see `haienv doctor`")
    if source.owner != home.user:
        raise Denied(
            f"the files of {source} are not yours", f"extend it, or `haienv pull {source} {name}`"
        )
    with building(home) as work:
        label = replace(source.label, created=now(), updated=now(), previous="")
        _publish(home, work, name, source.layer_id, label)
    return _there(home, name)


def _publish(home: Home, work: Path, name: str, layer_id: str, label: Label) -> None:
    made = work / "env"
    made.mkdir()
    replace_text(made / LABEL, to_toml(label))
    (made / CURRENT).symlink_to(_link(layer_id))
    show(made, label)
    with committing(home):
        _still(home, layer_id)
        open_layer(home, layer_id, label)
        if not publish(made, home.directory(home.user, name)):
            raise _taken(home, name)
        _touch(home, layer_id)


def _link(layer_id: str) -> str:
    return f"../.layers/{layer_id}"


def _still(home: Home, layer_id: str) -> None:
    if not (home.layer(home.user, layer_id) / RECORD).exists():
        raise Busy("the layer was removed meanwhile by another command", "run it again")


def _touch(home: Home, layer_id: str) -> None:
    """It is in use until now at least; gc waits some days from then."""
    with suppress(FileNotFoundError):
        (home.layer(home.user, layer_id) / USED).touch()


def _free(home: Home, name: str) -> None:
    if os.path.lexists(home.directory(home.user, name)):
        raise _taken(home, name)


def _taken(home: Home, name: str) -> Exists:
    return Exists(
        f"environment {name}[{home.user}] exists", f"choose another name, or `haienv remove {name}`"
    )


def _there(home: Home, name: str) -> Environment:
    found = read(home, home.user, name)
    if found is None:
        raise NotFound(f"environment {name}[{home.user}] was removed meanwhile")
    return found


def mine(home: Home, environment: Environment) -> Environment:
    """The environment itself, if the caller may change it."""
    if environment.owner != home.user:
        raise Denied(
            f"{environment} belongs to {environment.owner}",
            f"extend it: haienv create NAME --extend '{environment}'",
        )
    return environment


def rebuild(
    home: Home,
    uv: Uv,
    environment: Environment,
    change: Callable[[Wish], Wish],
    tell: Tell,
    base: Foundation | None = None,
) -> Built | None:
    """Other packages: a new layer beside the old one, then a switch. None: a dry run."""
    layer = mine(home, environment).usable
    before = parse(environment.lock())
    pins = before.pins if before else ()
    ground_is_new = base is not None
    wish = change(Wish(layer.wanted, layer.editable, pins, new_ground=ground_is_new))
    with building(home) as work:
        built = build(home, uv, base or ground.on_layer(environment), wish, work, tell)
        if built is not None:
            switch(home, environment, built.layer_id)
    return built


def switch(home: Home, environment: Environment, layer_id: str) -> None:
    """Let an environment have another layer, unless somebody changed it meanwhile."""
    with committing(home):
        found = _unchanged(home, environment)
        _still(home, layer_id)
        if layer_id == found.layer_id:
            return
        label = replace(found.label, previous=found.layer_id, updated=now())
        open_layer(home, layer_id, label)
        replace_text(found.directory / LABEL, to_toml(label))
        replace_link(found.directory / CURRENT, _link(layer_id))
        _touch(home, found.layer_id)
        _touch(home, layer_id)


def _unchanged(home: Home, environment: Environment) -> Environment:
    found = read(home, environment.owner, environment.name)
    if found is None or found.layer_id != environment.layer_id:
        raise Busy(f"{environment} was changed meanwhile by another command", "run it again")
    return found


def roll_back(home: Home, environment: Environment) -> Environment:
    """The layer before the last change."""
    previous = mine(home, environment).label.previous
    layer = layer_at(home, home.user, previous) if previous else None
    if layer is None:
        raise NotFound(f"{environment} has no earlier layer", "gc deletes them after some days")
    if fault := missing(home, home.layer(home.user, previous), layer.parents):
        raise Broken(f"the earlier layer of {environment} cannot be used: {fault}")
    switch(home, environment, previous)
    return _there(home, environment.name)


def configure(
    home: Home, environment: Environment, change: Callable[[Label], Label]
) -> Environment:
    """Another label: configuration, visibility, description."""
    mine(home, environment)
    with committing(home):
        found = read(home, environment.owner, environment.name)
        if found is None:
            raise NotFound(f"{environment} was removed meanwhile")
        label = replace(change(found.label), updated=now())
        check(home, label, found.layer.parents if found.layer else ())
        replace_text(found.directory / LABEL, to_toml(label))
        show(found.directory, label)
        if found.layer is not None:
            open_layer(home, found.layer_id)
    return _there(home, environment.name)


def rename(home: Home, environment: Environment, name: str) -> Environment:
    """Another name. What extends it names its layer, so it goes on."""
    mine(home, environment)
    check_name(name)
    with committing(home):
        _free(home, name)
        if not publish(environment.directory, home.directory(home.user, name)):
            raise _taken(home, name)
    return _there(home, name)


def remove(
    home: Home, environment: Environment, force: bool = False, busy: Set[str] = frozenset()
) -> None:
    """Not listed from one moment to the next; then its files go, unless something else needs them.

    `busy`: layers that programs run in; they are left to gc.
    """
    mine(home, environment)
    below = dependants(home, environment)
    if below and not force:
        raise Refused(
            f"{environment} is extended by {', '.join(map(str, below))}",
            "remove those first; with --force its name goes, and its files when they do",
        )
    layers = {environment.layer_id, environment.label.previous} - {"", *busy}
    with committing(home):
        for layer_id in layers:  # if we die below, these are orphans, and doctor takes them
            (home.layer(home.user, layer_id) / USED).unlink(missing_ok=True)
        gone = [put_away(home, environment.directory), *drop_layers(home, layers)]
    for path in gone:
        delete(path)


def dependants(home: Home, environment: Environment) -> list[Environment]:
    """Environments that extend this one, as far as the caller sees them."""
    if not environment.layer_id:
        return []
    twins = [e for e in of_owner(home, environment.owner) if e.layer_id == environment.layer_id]
    if len(twins) > 1:
        return []
    return children(home, environment.owner, frozenset({environment.layer_id}))


def drop_layers(home: Home, layer_ids: Iterable[str]) -> list[Path]:
    """Put away those layers that nothing uses. Under the lease."""
    used = used_layers(home)
    unused = [home.layer(home.user, each) for each in layer_ids if each not in used]
    return [put_away(home, path) for path in unused if path.is_dir()]


def used_layers(home: Home) -> set[str]:
    """The caller's layers that an environment of anybody has, had before, or stands on now or then."""
    used: set[str] = set()
    for each in everything(home):
        before = layer_at(home, each.owner, each.label.previous) if each.label.previous else None
        if each.owner == home.user:
            used |= {each.layer_id, each.label.previous}
        for layer in filter(None, (each.layer, before)):
            used |= {p.layer for p in layer.parents if p.owner == home.user}
    return used


def pins_before(environment: Environment) -> tuple[str, ...]:
    """What is in its own layer, as name==version."""
    return tuple(pin.text for pin in pins_of(environment.lock()))
