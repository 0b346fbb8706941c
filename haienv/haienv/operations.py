"""Creates, changes, renames and removes environments.

Each operation has one commit point; docs/contributing/environments.md lists them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from haienv.backends.uv import Uv
from haienv.errors import Broken, Busy, Denied, Exists, NotFound, Refused, UsageError
from haienv.layers.base import Base, make_layer_base
from haienv.layers.build import BuildRequest, BuildResult, PlanCallback, build
from haienv.layers.gc import move_unused_to_trash
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
from haienv.store.records import EnvMetadata, MalformedRecord, parse_metadata, to_toml, utc_now
from haienv.store.registry import (
    Environment,
    find_children,
    layer_fault,
    list_environments_of,
    read_environment,
    read_layer,
)
from haienv.store.requirements_lock import Pin, parse_lock
from haienv.store.transaction import (
    build_directory,
    delete_tree,
    hold_lease,
    move_to_trash,
    publish,
    replace_link,
    replace_text,
)
from haienv.store.untrusted_io import RECORD_LIMIT_BYTES


def create(
    home: Home,
    uv: Uv,
    name: str,
    base: Base,
    request: BuildRequest,
    metadata: EnvMetadata,
    on_plan: PlanCallback,
) -> Environment | None:
    """Create an environment. Return None after a dry run."""
    _require_free_name(home, check_name(name))
    _metadata_text(metadata)
    check_visibility(home, metadata, base.parents)
    with build_directory(home) as work:
        built = build(home, uv, base, request, work, on_plan)
        if built is None:
            return None
        _publish(
            home,
            work,
            name,
            built.layer_id,
            replace(metadata, created=utc_now(), updated=utc_now()),
        )
    return _read_back(home, name)


def clone(home: Home, source: Environment, name: str) -> Environment:
    """Create an environment that uses the layer of `source`. Both environments can change independently."""
    _require_free_name(home, check_name(name))
    require_same_root(home, source)
    if not source.is_ready:
        raise Broken(f"environment {source} is broken: {source.fault}", "see `haienv doctor`")
    if source.owner != home.user:
        raise Denied(
            f"{source} belongs to {source.owner}", f"extend it, or `haienv pull {source} {name}`"
        )
    with build_directory(home) as work:
        metadata = replace(source.metadata, created=utc_now(), updated=utc_now(), previous="")
        _publish(home, work, name, source.layer_id, metadata)
    return _read_back(home, name)


def _metadata_text(metadata: EnvMetadata) -> str:
    """Return the text of metadata. Raise UsageError if haienv or the server could not read the text back."""
    text = to_toml(metadata)
    try:
        parse_metadata(text)
    except MalformedRecord as error:
        raise UsageError(str(error)) from error
    if len(text.encode()) > RECORD_LIMIT_BYTES:
        raise UsageError(
            f"variables, directories and hooks are too long: the limit is {RECORD_LIMIT_BYTES >> 10} KiB"
        )
    return text


def _publish(home: Home, work: Path, name: str, layer_id: str, metadata: EnvMetadata) -> None:
    """Publish a new environment with a layer. Raise Exists if its name was taken meanwhile."""
    prepared = work / "env"
    prepared.mkdir()
    replace_text(prepared / METADATA_FILE, _metadata_text(metadata))
    (prepared / CURRENT_LINK).symlink_to(_link_target(layer_id))
    apply_visibility(prepared, metadata)
    with hold_lease(home):
        _register_dependencies(home, layer_id)
        update_layer_mode(home, layer_id, metadata)
        if not publish(prepared, home.directory(home.user, name)):
            raise _name_taken(home, name)
        _touch_last_used(home, layer_id)
        record_change(home, "create", name, layer_id)


def _link_target(layer_id: str) -> str:
    return f"../.layers/{layer_id}"


def _register_dependencies(home: Home, layer_id: str) -> None:
    """Mark the parents of a layer as needed, then check that the parents still exist.

    Owners check the marks after they have removed a layer, so one of both sides always notices the other.
    """
    layer = read_layer(home, home.user, layer_id)
    reverse_dependencies.create_marks(home, layer.parents if layer else ())
    if layer is None or not all(home.layer(p.owner, p.layer).is_dir() for p in layer.parents):
        raise Busy("another command removed a layer meanwhile", "run it again")


def _touch_last_used(home: Home, layer_id: str) -> None:
    """Record that a layer was in use until now. The garbage collection deletes it some days later at the earliest."""
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
    environment = read_environment(home, home.user, name)
    if environment is None:
        raise NotFound(f"environment {name}[{home.user}] was removed meanwhile")
    return environment


def _require_exists(environment: Environment) -> None:
    """Raise NotFound if another command removed or renamed the environment. The caller must hold the lease."""
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
    """Build a new layer with other packages, and switch the environment to it.

    The layer is built on `base`, or on the current base if `base` is None. Return None after a dry run.
    """
    require_owner(home, environment)
    layer = environment.usable_layer if base is None else environment.recorded_layer
    current_base = make_layer_base(environment, layer)
    new_base = base or current_base
    if new_base.parents != current_base.parents:
        check_visibility(home, environment.metadata, new_base.parents)
    is_same_base = (new_base.parents, new_base.python) == (
        current_base.parents,
        current_base.python,
    )
    current = BuildRequest(
        layer.wanted,
        layer.editable,
        _read_pins(environment),
        base_changed=not is_same_base,
        recheck_shadows=base is not None,
    )
    with build_directory(home) as work:
        built = build(home, uv, new_base, change(current), work, on_plan)
        if built is not None:
            switch(home, environment, built.layer_id)
    return built


def _read_pins(environment: Environment) -> tuple[Pin, ...]:
    """Return the pins of the environment's lock; empty if the lock is missing or unreadable."""
    with suppress(Broken):
        lock = parse_lock(environment.lock())
        return lock.pins if lock else ()
    return ()


def switch(home: Home, environment: Environment, layer_id: str) -> None:
    """Make an environment use another layer. Raise Busy if another command changed the environment meanwhile."""
    with hold_lease(home):
        current = _require_unchanged(home, environment)
        _register_dependencies(home, layer_id)
        if layer_id == current.layer_id:
            return
        metadata = replace(current.metadata, previous=current.layer_id, updated=utc_now())
        update_layer_mode(home, layer_id, metadata)
        replace_text(current.directory / METADATA_FILE, to_toml(metadata))
        replace_link(current.directory / CURRENT_LINK, _link_target(layer_id))
        _touch_last_used(home, current.layer_id)
        _touch_last_used(home, layer_id)
        record_change(home, "switch", current.name, layer_id)


def _require_unchanged(home: Home, environment: Environment) -> Environment:
    current = read_environment(home, environment.owner, environment.name)
    if current is None or current.layer_id != environment.layer_id:
        raise Busy(f"{environment} was changed by another command meanwhile", "run it again")
    return current


def roll_back(home: Home, environment: Environment) -> Environment:
    """Switch an environment back to the layer before its last change."""
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
    """Change the metadata of an environment: configuration, visibility, description."""
    require_owner(home, environment)
    with hold_lease(home):
        current = read_environment(home, environment.owner, environment.name)
        if current is None:
            raise NotFound(f"{environment} was removed meanwhile")
        if not current.text:  # the file could not be read, so its contents would be lost
            raise Broken(
                f"{environment} is broken: {current.fault}",
                f"repair {current.directory / METADATA_FILE}",
            )
        metadata = replace(change(current.metadata), updated=utc_now())
        # A parent may have become private since then; that must not prevent other changes.
        if _audience(metadata) != _audience(current.metadata):
            check_visibility(home, metadata, current.layer.parents if current.layer else ())
        replace_text(current.directory / METADATA_FILE, _metadata_text(metadata))
        apply_visibility(current.directory, metadata)
        if current.layer is not None:
            update_layer_mode(home, current.layer_id)
        record_change(home, "configure", current.name, current.layer_id)
    return _read_back(home, environment.name)


def _audience(metadata: EnvMetadata) -> tuple[str, str]:
    return metadata.visibility, metadata.group


def rename(home: Home, environment: Environment, name: str) -> Environment:
    """Rename an environment. Children keep working, because they refer to its layer."""
    require_owner(home, environment)
    check_name(name)
    with hold_lease(home):
        _require_exists(environment)
        _require_free_name(home, name)
        if not publish(environment.directory, home.directory(home.user, name)):
            raise _name_taken(home, name)
        record_change(home, f"rename to {name}", environment.name, environment.layer_id)
    return _read_back(home, name)


def remove(
    home: Home, environment: Environment, force: bool = False, busy_layers: Set[str] = frozenset()
) -> None:
    """Remove an environment, then delete its layers unless something else needs them.

    Programs run in the layers of `busy_layers`; the garbage collection deletes these layers later.
    """
    require_owner(home, environment)
    if not force and (dependents := _list_dependents(home, environment)):
        raise Refused(
            f"{environment} is extended by {', '.join(dependents)}",
            "remove those first; --force removes its name now, and its files when nothing extends them",
        )
    layers = {environment.layer_id, environment.metadata.previous} - {"", *busy_layers}
    with hold_lease(home):
        _require_exists(environment)
        trashed = [move_to_trash(home, environment.directory)]
        record_change(home, "remove", environment.name)
        trashed += move_unused_to_trash(home, layers)
    for path in trashed:
        delete_tree(path)


def _list_dependents(home: Home, environment: Environment) -> list[str]:
    """Return the environments that extend this one; for those hidden from the caller, only the owners."""
    layer = environment.layer_id
    same_layer = {
        e.name for e in list_environments_of(home, environment.owner) if e.layer_id == layer
    }
    if not layer or same_layer - {environment.name}:  # another environment keeps the layer
        return []
    visible = find_children(home, environment.owner, frozenset({layer}))
    hidden = set(reverse_dependencies.find_dependents(home).get(layer, ())) - {
        each.owner for each in visible
    }
    return [*map(str, visible), *(f"one of {user}'s" for user in sorted(hidden))]
