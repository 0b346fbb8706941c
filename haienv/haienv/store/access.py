"""Who sees an environment: modes of its label and of its layer."""

from __future__ import annotations

import os
from pathlib import Path

from haienv.errors import Denied, Refused, UsageError
from haienv.store.layout import Home
from haienv.store.records import MODES, VISIBILITIES, Label, Parent
from haienv.store.registry import Environment, of_owner, read
from haienv.store.reverse_dependencies import others_on


def group_id(name: str) -> int:
    """The number of a group of this system."""
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise UsageError(f"this system has no group {name!r}", "`id -Gn` shows yours") from error


def check(home: Home, label: Label, parents: tuple[Parent, ...]) -> None:
    """What is shown to others must stand on what they see too."""
    if label.visibility == "group":
        if not label.group:
            raise UsageError("visibility group needs a group", "add --group NAME")
        if group_id(label.group) not in (os.getgid(), *os.getgroups()) and os.getuid() != 0:
            raise Denied(f"you are not in group {label.group}", "`id -Gn` shows yours")
    for parent in parents:
        below = read(home, parent.owner, parent.name)
        if below is not None and _narrower(below.label, label):
            raise Refused(
                f"{below} is {below.label.visibility}, so what extends it cannot be {label.visibility}",
                f"first: haienv config set {below.name} visibility {label.visibility}",
            )


def _narrower(parent: Label, child: Label) -> bool:
    order = VISIBILITIES.index
    if parent.visibility == child.visibility == "group":
        return parent.group != child.group
    return order(parent.visibility) < order(child.visibility)


def open_layer(home: Home, layer_id: str, *more: Label) -> None:
    """Let those see a layer who see an environment that uses it; nobody closes it to others who stand on it."""
    path, widest = home.layer(home.user, layer_id), _widest([*_users(home, layer_id), *more])
    narrower = _mode(path) > MODES[widest.visibility]
    if not (narrower and layer_id in others_on(home)):
        show(path, widest)


def is_open_as_it_should(home: Home, layer_id: str) -> bool:
    """Whether a layer's mode is that of the environments that use it, or wider for others who stand on it."""
    mode, wanted = (
        _mode(home.layer(home.user, layer_id)),
        MODES[_widest(_users(home, layer_id)).visibility],
    )
    return mode == wanted or (
        mode in MODES.values() and mode > wanted and layer_id in others_on(home)
    )


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _users(home: Home, layer_id: str) -> list[Label]:
    return [e.label for e in of_owner(home, home.user) if layer_id in _layers(e)]


def _layers(environment: Environment) -> tuple[str, ...]:
    below = environment.layer.parents if environment.layer else ()
    return (environment.layer_id, *(p.layer for p in below if p.owner == environment.owner))


def _widest(labels: list[Label]) -> Label:
    return max(labels, key=lambda each: VISIBILITIES.index(each.visibility), default=Label())


def show(path: Path, label: Label) -> None:
    """Set mode and group of a directory; nothing below needs it."""
    if label.visibility == "group":
        os.chown(path, -1, group_id(label.group))
    path.chmod(MODES[label.visibility])


def mine(home: Home, environment: Environment) -> Environment:
    """The environment itself, if the caller may change it."""
    if environment.owner != home.user:
        raise Denied(
            f"{environment} belongs to {environment.owner}",
            f"extend it: haienv create NAME --extend '{environment}'",
        )
    require_here(home, environment)
    return environment


def require_here(home: Home, environment: Environment) -> None:
    """What lies in another root is looked at and entered there; layers see those of their own root."""
    if environment.root != home.root:
        raise Denied(
            f"{environment} lies in {environment.root}, another root",
            f"change it there: HAIENV_HOME={environment.root} haienv …; or bring it here: haienv export, import",
        )
