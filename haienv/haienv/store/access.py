"""Controls who may read and who may change an environment, by the modes of its directory and of its layer."""

from __future__ import annotations

import os
from pathlib import Path

from haienv.errors import Denied, Refused, UsageError
from haienv.store.layout import Home
from haienv.store.records import MODES, VISIBILITIES, EnvMetadata, Parent
from haienv.store.registry import Environment, list_environments_of, read_environment
from haienv.store.reverse_dependencies import find_dependents


def find_group_id(name: str) -> int:
    """Return the gid of a system group. Raise UsageError."""
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise UsageError(f"this system has no group {name!r}", "`id -Gn` shows yours") from error


def check_visibility(home: Home, metadata: EnvMetadata, parents: tuple[Parent, ...]) -> None:
    """Check that the group is valid, and that every parent is at least as visible as the environment.

    Raise UsageError, Denied or Refused.
    """
    if metadata.visibility == "group":
        if not metadata.group:
            raise UsageError("visibility group requires a group", "add --group NAME")
        if find_group_id(metadata.group) not in (os.getgid(), *os.getgroups()) and os.getuid() != 0:
            raise Denied(f"you are not in group {metadata.group}", "`id -Gn` shows yours")
    for parent in parents:
        extended = read_environment(home, parent.owner, parent.name)
        if extended is not None and _is_narrower(extended.metadata, metadata):
            raise Refused(
                f"{extended} is {extended.metadata.visibility}, so what extends it cannot be {metadata.visibility}",
                f"first: haienv config set {extended.name} visibility {metadata.visibility}",
            )


def _is_narrower(parent: EnvMetadata, child: EnvMetadata) -> bool:
    order = VISIBILITIES.index
    if parent.visibility == child.visibility == "group":
        return parent.group != child.group
    return order(parent.visibility) < order(child.visibility)


def update_layer_mode(home: Home, layer_id: str, *added: EnvMetadata) -> None:
    """Give a layer the widest visibility among the environments that use it and `added`.

    The visibility is never narrowed while other users extend the layer.
    """
    path = home.layer(home.user, layer_id)
    widest = _widest([*_list_metadata_using(home, layer_id), *added])
    would_narrow = _read_mode(path) > MODES[widest.visibility]
    if not (would_narrow and layer_id in find_dependents(home)):
        apply_visibility(path, widest)


def is_layer_mode_correct(home: Home, layer_id: str) -> bool:
    """Return True if a layer has the widest visibility of its environments, or a wider one while others extend it."""
    mode = _read_mode(home.layer(home.user, layer_id))
    expected = MODES[_widest(_list_metadata_using(home, layer_id)).visibility]
    is_wider = mode in MODES.values() and mode > expected
    return mode == expected or (is_wider and layer_id in find_dependents(home))


def _read_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _list_metadata_using(home: Home, layer_id: str) -> list[EnvMetadata]:
    return [e.metadata for e in list_environments_of(home, home.user) if layer_id in _layers_of(e)]


def _layers_of(environment: Environment) -> tuple[str, ...]:
    parents = environment.layer.parents if environment.layer else ()
    return (environment.layer_id, *(p.layer for p in parents if p.owner == environment.owner))


def _widest(candidates: list[EnvMetadata]) -> EnvMetadata:
    return max(
        candidates, key=lambda each: VISIBILITIES.index(each.visibility), default=EnvMetadata()
    )


def apply_visibility(path: Path, metadata: EnvMetadata) -> None:
    """Set mode and group of a directory. The modes of its contents need no change."""
    if metadata.visibility == "group":
        os.chown(path, -1, find_group_id(metadata.group))
    path.chmod(MODES[metadata.visibility])


def require_owner(home: Home, environment: Environment) -> Environment:
    """Return the environment. Raise Denied if the caller may not change it."""
    if environment.owner != home.user:
        raise Denied(
            f"{environment} belongs to {environment.owner}",
            f"extend it: haienv create NAME --extend '{environment}'",
        )
    require_same_root(home, environment)
    return environment


def require_same_root(home: Home, environment: Environment) -> None:
    """Raise Denied for an environment of another root, which can be read and activated, but not changed or extended."""
    if environment.root != home.root:
        raise Denied(
            f"{environment} is in {environment.root}, another root",
            f"change it there: HAIENV_HOME={environment.root} haienv …; or copy it with haienv export and import",
        )
