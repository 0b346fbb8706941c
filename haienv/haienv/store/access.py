"""Who may read and who may change an environment: modes of its directory and of its layer."""

from __future__ import annotations

import os
from pathlib import Path

from haienv.errors import Denied, Refused, UsageError
from haienv.store.layout import Home
from haienv.store.records import MODES, VISIBILITIES, EnvMetadata, Parent
from haienv.store.registry import Environment, list_owner, read_environment
from haienv.store.reverse_dependencies import dependents


def group_id(name: str) -> int:
    """The gid of a system group. Raises UsageError."""
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise UsageError(f"this system has no group {name!r}", "`id -Gn` shows yours") from error


def check_visibility(home: Home, metadata: EnvMetadata, parents: tuple[Parent, ...]) -> None:
    """Raises an error if the group is invalid, or if a parent is less visible than the environment would be."""
    if metadata.visibility == "group":
        if not metadata.group:
            raise UsageError("visibility group requires a group", "add --group NAME")
        if group_id(metadata.group) not in (os.getgid(), *os.getgroups()) and os.getuid() != 0:
            raise Denied(f"you are not in group {metadata.group}", "`id -Gn` shows yours")
    for parent in parents:
        below = read_environment(home, parent.owner, parent.name)
        if below is not None and _narrower(below.metadata, metadata):
            raise Refused(
                f"{below} is {below.metadata.visibility}, so what extends it cannot be {metadata.visibility}",
                f"first: haienv config set {below.name} visibility {metadata.visibility}",
            )


def _narrower(parent: EnvMetadata, child: EnvMetadata) -> bool:
    order = VISIBILITIES.index
    if parent.visibility == child.visibility == "group":
        return parent.group != child.group
    return order(parent.visibility) < order(child.visibility)


def update_layer_mode(home: Home, layer_id: str, *added: EnvMetadata) -> None:
    """Give a layer the widest visibility of the environments that use it; never narrower while others extend it."""
    path, widest = (
        home.layer(home.user, layer_id),
        _widest([*_metadata_using(home, layer_id), *added]),
    )
    narrower = _mode(path) > MODES[widest.visibility]
    if not (narrower and layer_id in dependents(home)):
        apply_visibility(path, widest)


def layer_mode_is_correct(home: Home, layer_id: str) -> bool:
    """True if the mode is that of the environments that use the layer, or wider while others extend it."""
    mode, expected = (
        _mode(home.layer(home.user, layer_id)),
        MODES[_widest(_metadata_using(home, layer_id)).visibility],
    )
    return mode == expected or (
        mode in MODES.values() and mode > expected and layer_id in dependents(home)
    )


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _metadata_using(home: Home, layer_id: str) -> list[EnvMetadata]:
    return [e.metadata for e in list_owner(home, home.user) if layer_id in _all_layers(e)]


def _all_layers(environment: Environment) -> tuple[str, ...]:
    below = environment.layer.parents if environment.layer else ()
    return (environment.layer_id, *(p.layer for p in below if p.owner == environment.owner))


def _widest(metadata_files: list[EnvMetadata]) -> EnvMetadata:
    return max(
        metadata_files, key=lambda each: VISIBILITIES.index(each.visibility), default=EnvMetadata()
    )


def apply_visibility(path: Path, metadata: EnvMetadata) -> None:
    """Set mode and group of a directory; its contents need no change."""
    if metadata.visibility == "group":
        os.chown(path, -1, group_id(metadata.group))
    path.chmod(MODES[metadata.visibility])


def require_owner(home: Home, environment: Environment) -> Environment:
    """Return the environment. Raises Denied if the caller may not change it."""
    if environment.owner != home.user:
        raise Denied(
            f"{environment} belongs to {environment.owner}",
            f"extend it: haienv create NAME --extend '{environment}'",
        )
    require_same_root(home, environment)
    return environment


def require_same_root(home: Home, environment: Environment) -> None:
    """Raises Denied for an environment of another root: it can be read and activated, not changed or extended."""
    if environment.root != home.root:
        raise Denied(
            f"{environment} is in {environment.root}, another root",
            f"change it there: HAIENV_HOME={environment.root} haienv …; or copy it with haienv export and import",
        )
