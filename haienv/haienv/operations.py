"""What users do with environments. Each change has one commit point: docs/contributing/environments.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from haienv.backends.uv import Uv
from haienv.errors import Broken, Busy, Denied, Exists, NotFound, Refused, UsageError
from haienv.layers import base as ground
from haienv.layers.base import Base
from haienv.layers.build import BuildRequest, Built, Tell, build
from haienv.layers.gc import take
from haienv.names import check_name
from haienv.store import reverse_dependencies
from haienv.store.access import check, mine, open_layer, require_here, show
from haienv.store.history import note
from haienv.store.layout import CURRENT, LABEL, USED, Home
from haienv.store.lock import Pin, parse
from haienv.store.records import Label, Malformed, label_from, to_toml
from haienv.store.registry import Environment, children, layer_at, missing, of_owner, read
from haienv.store.transaction import (
    building,
    committing,
    delete,
    publish,
    put_away,
    replace_link,
    replace_text,
)
from haienv.store.untrusted_io import LIMIT


def now() -> datetime:
    """To the second."""
    return datetime.now(UTC).replace(microsecond=0)


def create(
    home: Home, uv: Uv, name: str, base: Base, wish: BuildRequest, label: Label, tell: Tell
) -> Environment | None:
    """A new environment; None after a dry run."""
    _free(home, check_name(name))
    _text(label)
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
    require_here(home, source)
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


def _text(label: Label) -> str:
    """What is written can be read again, by the server too."""
    text = to_toml(label)
    try:
        label_from(text)
    except Malformed as error:
        raise UsageError(str(error)) from error
    if len(text.encode()) > LIMIT:
        raise UsageError(f"variables, directories and hooks have {LIMIT >> 10} KiB at most")
    return text


def _publish(home: Home, work: Path, name: str, layer_id: str, label: Label) -> None:
    made = work / "env"
    made.mkdir()
    replace_text(made / LABEL, _text(label))
    (made / CURRENT).symlink_to(_link(layer_id))
    show(made, label)
    with committing(home):
        _stand(home, layer_id)
        open_layer(home, layer_id, label)
        if not publish(made, home.directory(home.user, name)):
            raise _taken(home, name)
        _touch(home, layer_id)
        note(home, "create", name, layer_id)


def _link(layer_id: str) -> str:
    return f"../.layers/{layer_id}"


def _stand(home: Home, layer_id: str) -> None:
    """Let owners of layers below know, before they can take one away; they look again after that."""
    layer = layer_at(home, home.user, layer_id)
    reverse_dependencies.tell(home, layer.parents if layer else ())
    if layer is None or not all(home.layer(p.owner, p.layer).is_dir() for p in layer.parents):
        raise Busy("a layer was removed meanwhile by another command", "run it again")


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


def require_there(environment: Environment) -> None:
    """Under the lease: another command may have removed it, or given it another name."""
    if not environment.directory.is_dir():
        raise NotFound(f"{environment} was removed meanwhile", "`haienv list` shows what there is")


def rebuild(
    home: Home,
    uv: Uv,
    environment: Environment,
    change: Callable[[BuildRequest], BuildRequest],
    tell: Tell,
    base: Base | None = None,
) -> Built | None:
    """Other packages: a new layer beside the old one, then a switch. None: a dry run."""
    anew = base is not None
    mine(home, environment)
    layer = environment.told if anew else environment.usable
    pins = _pins(environment)
    old = ground.on_layer(environment, layer)
    base = base or old
    moved = (base.parents, base.python) != (old.parents, old.python)
    if base.parents != old.parents:
        check(home, environment.label, base.parents)
    wish = change(
        BuildRequest(layer.wanted, layer.editable, pins, new_ground=moved, judged_anew=anew)
    )
    with building(home) as work:
        built = build(home, uv, base, wish, work, tell)
        if built is not None:
            switch(home, environment, built.layer_id)
    return built


def _pins(environment: Environment) -> tuple[Pin, ...]:
    """Of its lock; none where that is gone."""
    with suppress(Broken):
        before = parse(environment.lock())
        return before.pins if before else ()
    return ()


def switch(home: Home, environment: Environment, layer_id: str) -> None:
    """Let an environment have another layer, unless somebody changed it meanwhile."""
    with committing(home):
        found = _unchanged(home, environment)
        _stand(home, layer_id)
        if layer_id == found.layer_id:
            return
        label = replace(found.label, previous=found.layer_id, updated=now())
        open_layer(home, layer_id, label)
        replace_text(found.directory / LABEL, to_toml(label))
        replace_link(found.directory / CURRENT, _link(layer_id))
        _touch(home, found.layer_id)
        _touch(home, layer_id)
        note(home, "switch", found.name, layer_id)


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
    if fault := missing(home, home.layer(home.user, previous), layer):
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
        if not found.text:  # its label was not read, so all that it says would be lost
            raise Broken(
                f"{environment} is broken: {found.fault}", f"mend {found.directory / LABEL}"
            )
        label = replace(change(found.label), updated=now())
        if _eyes(label) != _eyes(found.label):  # parents may be hidden since
            check(home, label, found.layer.parents if found.layer else ())
        replace_text(found.directory / LABEL, _text(label))
        show(found.directory, label)
        if found.layer is not None:
            open_layer(home, found.layer_id)
        note(home, "configure", found.name, found.layer_id)
    return _there(home, environment.name)


def _eyes(label: Label) -> tuple[str, str]:
    """Who sees it."""
    return label.visibility, label.group


def rename(home: Home, environment: Environment, name: str) -> Environment:
    """Another name. What extends it names its layer, so it goes on."""
    mine(home, environment)
    check_name(name)
    with committing(home):
        require_there(environment)
        _free(home, name)
        if not publish(environment.directory, home.directory(home.user, name)):
            raise _taken(home, name)
        note(home, f"rename to {name}", environment.name, environment.layer_id)
    return _there(home, name)


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
    hidden = set(reverse_dependencies.others_on(home).get(layer, ())) - {
        each.owner for each in seen
    }
    return [*map(str, seen), *(f"one of {user}'s" for user in sorted(hidden))]
