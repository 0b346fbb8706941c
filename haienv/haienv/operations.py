"""Operations on environments. Each change has one commit point, see docs/contributing/environments.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from haienv.backends.uv import Uv
from haienv.errors import Broken, Busy, Denied, Exists, NotFound, Refused, UsageError
from haienv.layers.base import Base, layer_base
from haienv.layers.build import BuildRequest, BuildResult, PlanCallback, build
from haienv.layers.gc import trash_unused
from haienv.names import check_name
from haienv.store import reverse_dependencies
from haienv.store.access import (
    apply_visibility,
    check_visibility,
    require_owner,
    require_same_root,
    update_layer_mode,
)
from haienv.store.history import record_change
from haienv.store.layout import CURRENT_LINK, LAST_USED_FILE, METADATA_FILE, Home
from haienv.store.lock_file import Pin, parse_lock
from haienv.store.records import EnvMetadata, MalformedRecord, parse_metadata, to_toml
from haienv.store.registry import (
    Environment,
    children,
    layer_fault,
    list_owner,
    read_environment,
    read_layer,
)
from haienv.store.transaction import (
    build_directory,
    committing,
    delete_tree,
    move_to_trash,
    publish,
    replace_link,
    replace_text,
)
from haienv.store.untrusted_io import LIMIT


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def create(
    home: Home,
    uv: Uv,
    name: str,
    base: Base,
    request: BuildRequest,
    metadata: EnvMetadata,
    on_plan: PlanCallback,
) -> Environment | None:
    """Create an environment. Returns None after a dry run."""
    _require_free_name(home, check_name(name))
    _metadata_text(metadata)
    check_visibility(home, metadata, base.parents)
    with build_directory(home) as work:
        built = build(home, uv, base, request, work, on_plan)
        if built is None:
            return None
        _publish(home, work, name, built.layer_id, replace(metadata, created=now(), updated=now()))
    return _read_back(home, name)


def clone(home: Home, source: Environment, name: str) -> Environment:
    """Create an environment that uses the same layer; both can change independently."""
    _require_free_name(home, check_name(name))
    require_same_root(home, source)
    if not source.ready:
        raise Broken(f"environment {source} is broken: {source.fault}", "see `haienv doctor`")
    if source.owner != home.user:
        raise Denied(
            f"{source} belongs to {source.owner}", f"extend it, or `haienv pull {source} {name}`"
        )
    with build_directory(home) as work:
        metadata = replace(source.metadata, created=now(), updated=now(), previous="")
        _publish(home, work, name, source.layer_id, metadata)
    return _read_back(home, name)


def _metadata_text(metadata: EnvMetadata) -> str:
    """The text of metadata. Raises UsageError if haienv or the server could not read it again."""
    text = to_toml(metadata)
    try:
        parse_metadata(text)
    except MalformedRecord as error:
        raise UsageError(str(error)) from error
    if len(text.encode()) > LIMIT:
        raise UsageError(
            f"variables, directories and hooks are too long: the limit is {LIMIT >> 10} KiB"
        )
    return text


def _publish(home: Home, work: Path, name: str, layer_id: str, metadata: EnvMetadata) -> None:
    prepared = work / "env"
    prepared.mkdir()
    replace_text(prepared / METADATA_FILE, _metadata_text(metadata))
    (prepared / CURRENT_LINK).symlink_to(_link(layer_id))
    apply_visibility(prepared, metadata)
    with committing(home):
        _register_dependencies(home, layer_id)
        update_layer_mode(home, layer_id, metadata)
        if not publish(prepared, home.directory(home.user, name)):
            raise _name_taken(home, name)
        _touch_last_used(home, layer_id)
        record_change(home, "create", name, layer_id)


def _link(layer_id: str) -> str:
    return f"../.layers/{layer_id}"


def _register_dependencies(home: Home, layer_id: str) -> None:
    """Mark the layers below as needed, then check that they still exist; owners check marks after a removal."""
    layer = read_layer(home, home.user, layer_id)
    reverse_dependencies.create_marks(home, layer.parents if layer else ())
    if layer is None or not all(home.layer(p.owner, p.layer).is_dir() for p in layer.parents):
        raise Busy("another command removed a layer meanwhile", "run it again")


def _touch_last_used(home: Home, layer_id: str) -> None:
    """Record that a layer was in use until now; gc waits some days from then."""
    with suppress(FileNotFoundError):
        (home.layer(home.user, layer_id) / LAST_USED_FILE).touch()


def _require_free_name(home: Home, name: str) -> None:
    if os.path.lexists(home.directory(home.user, name)):
        raise _name_taken(home, name)


def _name_taken(home: Home, name: str) -> Exists:
    return Exists(
        f"environment {name}[{home.user}] already exists",
        f"choose another name, or `haienv remove {name}`",
    )


def _read_back(home: Home, name: str) -> Environment:
    found = read_environment(home, home.user, name)
    if found is None:
        raise NotFound(f"environment {name}[{home.user}] was removed meanwhile")
    return found


def _require_exists(environment: Environment) -> None:
    """Raises NotFound if another command removed or renamed the environment; the caller holds the lease."""
    if not environment.directory.is_dir():
        raise NotFound(
            f"{environment} was removed meanwhile", "`haienv list` shows all environments"
        )


def rebuild(
    home: Home,
    uv: Uv,
    environment: Environment,
    change: Callable[[BuildRequest], BuildRequest],
    on_plan: PlanCallback,
    base: Base | None = None,
) -> BuildResult | None:
    """Build a new layer with other packages, on a new base if one is passed, and switch to it.

    Returns None after a dry run.
    """
    new_base = base is not None
    require_owner(home, environment)
    layer = environment.recorded_layer if new_base else environment.usable
    pins = _locked_pins(environment)
    old = layer_base(environment, layer)
    base = base or old
    changed = (base.parents, base.python) != (old.parents, old.python)
    if base.parents != old.parents:
        check_visibility(home, environment.metadata, base.parents)
    request = change(
        BuildRequest(
            layer.wanted, layer.editable, pins, base_changed=changed, recheck_shadows=new_base
        )
    )
    with build_directory(home) as work:
        built = build(home, uv, base, request, work, on_plan)
        if built is not None:
            switch(home, environment, built.layer_id)
    return built


def _locked_pins(environment: Environment) -> tuple[Pin, ...]:
    """The pins of its lock; none if that is missing."""
    with suppress(Broken):
        lock = parse_lock(environment.lock())
        return lock.pins if lock else ()
    return ()


def switch(home: Home, environment: Environment, layer_id: str) -> None:
    """Let an environment use another layer. Raises Busy if another command changed it meanwhile."""
    with committing(home):
        found = _unchanged(home, environment)
        _register_dependencies(home, layer_id)
        if layer_id == found.layer_id:
            return
        metadata = replace(found.metadata, previous=found.layer_id, updated=now())
        update_layer_mode(home, layer_id, metadata)
        replace_text(found.directory / METADATA_FILE, to_toml(metadata))
        replace_link(found.directory / CURRENT_LINK, _link(layer_id))
        _touch_last_used(home, found.layer_id)
        _touch_last_used(home, layer_id)
        record_change(home, "switch", found.name, layer_id)


def _unchanged(home: Home, environment: Environment) -> Environment:
    found = read_environment(home, environment.owner, environment.name)
    if found is None or found.layer_id != environment.layer_id:
        raise Busy(f"{environment} was changed by another command meanwhile", "run it again")
    return found


def roll_back(home: Home, environment: Environment) -> Environment:
    """Switch back to the layer before the last change."""
    previous = require_owner(home, environment).metadata.previous
    layer = read_layer(home, home.user, previous) if previous else None
    if layer is None:
        raise NotFound(
            f"{environment} has no earlier layer", "gc deletes earlier layers after some days"
        )
    if fault := layer_fault(home, home.layer(home.user, previous), layer):
        raise Broken(f"the earlier layer of {environment} cannot be used: {fault}")
    switch(home, environment, previous)
    return _read_back(home, environment.name)


def configure(
    home: Home, environment: Environment, change: Callable[[EnvMetadata], EnvMetadata]
) -> Environment:
    """Change the metadata: configuration, visibility, description."""
    require_owner(home, environment)
    with committing(home):
        found = read_environment(home, environment.owner, environment.name)
        if found is None:
            raise NotFound(f"{environment} was removed meanwhile")
        if not found.text:  # the metadata was not read, so its contents would be lost
            raise Broken(
                f"{environment} is broken: {found.fault}",
                f"repair {found.directory / METADATA_FILE}",
            )
        metadata = replace(change(found.metadata), updated=now())
        if _audience(metadata) != _audience(
            found.metadata
        ):  # only then: a parent may have been hidden since
            check_visibility(home, metadata, found.layer.parents if found.layer else ())
        replace_text(found.directory / METADATA_FILE, _metadata_text(metadata))
        apply_visibility(found.directory, metadata)
        if found.layer is not None:
            update_layer_mode(home, found.layer_id)
        record_change(home, "configure", found.name, found.layer_id)
    return _read_back(home, environment.name)


def _audience(metadata: EnvMetadata) -> tuple[str, str]:
    return metadata.visibility, metadata.group


def rename(home: Home, environment: Environment, name: str) -> Environment:
    """Rename an environment. Children refer to its layer, so they keep working."""
    require_owner(home, environment)
    check_name(name)
    with committing(home):
        _require_exists(environment)
        _require_free_name(home, name)
        if not publish(environment.directory, home.directory(home.user, name)):
            raise _name_taken(home, name)
        record_change(home, f"rename to {name}", environment.name, environment.layer_id)
    return _read_back(home, name)


def remove(
    home: Home, environment: Environment, force: bool = False, busy: Set[str] = frozenset()
) -> None:
    """Remove an environment, then delete its layers unless something else needs them.

    `busy` are layers that programs run in; gc deletes them later.
    """
    require_owner(home, environment)
    if not force and (below := _dependents(home, environment)):
        raise Refused(
            f"{environment} is extended by {', '.join(below)}",
            "remove those first; --force removes its name now, and its files when nothing extends them",
        )
    layers = {environment.layer_id, environment.metadata.previous} - {"", *busy}
    with committing(home):
        _require_exists(environment)
        trashed = [move_to_trash(home, environment.directory)]
        record_change(home, "remove", environment.name)
        trashed += trash_unused(home, layers)
    for path in trashed:
        delete_tree(path)


def _dependents(home: Home, environment: Environment) -> list[str]:
    """Environments that extend this one; for those hidden from the caller, only their owners."""
    layer = environment.layer_id
    same_layer = {e.name for e in list_owner(home, environment.owner) if e.layer_id == layer}
    if not layer or same_layer - {environment.name}:
        return []
    visible = children(home, environment.owner, frozenset({layer}))
    hidden = set(reverse_dependencies.dependents(home).get(layer, ())) - {
        each.owner for each in visible
    }
    return [*map(str, visible), *(f"one of {user}'s" for user in sorted(hidden))]
