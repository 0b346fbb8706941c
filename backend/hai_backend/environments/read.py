"""One environment, or all of them, as their files say."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hai_backend.domain.environment import NAME, Environment, EnvironmentName, EnvironmentState
from hai_backend.environments import parse
from hai_backend.environments.errors import Broken
from hai_backend.environments.open_directories import Folder, opened
from hai_backend.environments.parse import Image, Label, Layer

LAYERS = ".layers"
MOST_OF_ONE = 2000
"""Environments of one user that are listed."""

IMAGE = "image.tar.zst"
"""The packed form of a layer, in its directory."""

_LABEL, _LAYER, _LOCK, _IMAGE = "env.toml", "layer.toml", "lock.txt", "image.toml"
_MOST_BYTES = 256 * 1024
_MOST_BYTES_OF_ONE = 2 << 20
"""Of records of one user that are read for a list, which takes a second for each MiB. The rest is known from before."""
_MOST_LOCK_BYTES = 16 * 1024 * 1024
_MOST_USERS = 100_000
_CURRENT = re.compile(r"\.\./\.layers/([0-9a-f]{24})")
_NONE_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Trusted = Callable[[str, int], bool]
"""Whether a user's directory may belong to this uid."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something is there that the reader may not look into, or not now: its owner has too much of it."""

    called: EnvironmentName


Seen = Environment | Unreadable | None


def look(root: Path, called: EnvironmentName, trusted: Trusted) -> Seen:
    """One environment, its lock compared; None: there is none."""
    try:
        with opened(root) as folder, folder.folder(called.owner) as home:
            return _compared(home, _look(folder, home, called, trusted))
    except PermissionError:
        return Unreadable(called)
    except OSError as error:
        _require_absent(error)
        return None


def scan(root: Path, trusted: Trusted) -> Iterator[Environment | Unreadable]:
    """All of them, by owner and name; locks need only be there. Nothing is said of directories that cannot be read."""
    try:
        with opened(root) as folder:
            for owner in filter(NAME.fullmatch, folder.names(_MOST_USERS)):
                with suppress(OSError), folder.folder(owner) as home:
                    yield from _of_owner(folder, home, owner, trusted)
    except OSError as error:
        _require_absent(error)


def read_label(root: Folder, called: EnvironmentName) -> Label:
    """Raises Broken, or OSError when it is not there."""
    with root.folder(called.owner) as home, home.folder(called.name) as folder:
        return parse.label(folder.text(_LABEL, _MOST_BYTES))


def current_layer(root: Folder, called: EnvironmentName) -> str:
    """The layer that an environment is now. Raises Broken, or OSError."""
    with root.folder(called.owner) as home, home.folder(called.name) as folder:
        return _current(folder)


@contextmanager
def layer_folder(root: Folder, owner: str, layer: str) -> Iterator[Folder]:
    """The directory of a layer. Raises OSError."""
    with root.folder(owner) as home, home.folder(LAYERS) as layers, layers.folder(layer) as folder:
        yield folder


def read_layer(folder: Folder) -> Layer:
    """Raises Broken, or OSError."""
    return parse.layer(folder.text(_LAYER, _MOST_BYTES))


def read_image(folder: Folder) -> Image:
    """Raises Broken, or OSError: FileNotFoundError when it was not packed."""
    return parse.image(folder.text(_IMAGE, _MOST_BYTES))


def read_lock(folder: Folder, lock_hash: str) -> str:
    """The lock of a layer, which must be the one that the layer names. Raises Broken, or OSError."""
    text = folder.text(_LOCK, _MOST_LOCK_BYTES)
    if hashlib.sha256(text.encode()).hexdigest() != lock_hash:
        raise Broken(f"{_LOCK} is not the one that {_LAYER} names")
    return text


def _compared(home: Folder, seen: Environment | None) -> Environment | None:
    """Not for lists: a lock may have megabytes."""
    if seen is None or seen.state is not EnvironmentState.READY:
        return seen
    try:
        with home.folder(LAYERS) as layers, layers.folder(seen.layer) as folder:
            read_lock(folder, seen.lock_hash)
    except Broken as error:
        return replace(seen, state=EnvironmentState.BROKEN, message=str(error))
    except OSError as error:
        why = f"its {_LOCK} cannot be read: {error.strerror}"
        return replace(seen, state=EnvironmentState.BROKEN, message=why)
    return seen


def _of_owner(
    root: Folder, home: Folder, owner: str, trusted: Trusted
) -> Iterator[Environment | Unreadable]:
    most = home.bytes_read + _MOST_BYTES_OF_ONE
    for name in filter(NAME.fullmatch, home.names(MOST_OF_ONE)):
        called = EnvironmentName(owner, name)
        if home.bytes_read > most:
            yield Unreadable(called)
            continue
        found: Seen
        try:
            found = _look(root, home, called, trusted)
        except PermissionError:
            found = Unreadable(called)
        except OSError:
            continue
        if found is not None:
            yield found


def _look(
    root: Folder, home: Folder, called: EnvironmentName, trusted: Trusted
) -> Environment | None:
    known = Environment(called.owner, called.name, EnvironmentState.BROKEN)
    with home.folder(called.name) as folder:
        try:
            known = _labelled(known, parse.label(folder.text(_LABEL, _MOST_BYTES)))
            known = replace(known, layer=_current(folder))
            known = _with_layer(root, home, known, trusted)
        except Broken as error:
            return replace(known, message=str(error))
    return replace(known, state=EnvironmentState.READY)


def _with_layer(root: Folder, home: Folder, known: Environment, trusted: Trusted) -> Environment:
    """What the layer adds. Raises Broken."""
    try:
        with home.folder(LAYERS) as layers, layers.folder(known.layer) as folder:
            layer = read_layer(folder)
            _check(root, home, known.called, trusted, folder, layer)
    except PermissionError:
        raise
    except OSError as error:
        raise Broken(f"layer {known.layer} is not whole: {error.strerror}") from error
    return _described(known, layer)


def _current(folder: Folder) -> str:
    try:
        match = _CURRENT.fullmatch(folder.link("current"))
    except OSError as error:
        raise Broken("current is no link") from error
    if match is None:
        raise Broken(f"current does not lead to a layer of {LAYERS}")
    return match[1]


def _check(
    root: Folder,
    home: Folder,
    called: EnvironmentName,
    trusted: Trusted,
    folder: Folder,
    layer: Layer,
) -> None:
    if not trusted(called.owner, home.owner()):
        raise Broken(f"its directory belongs to uid {home.owner()}, who is not {called.owner}")
    with folder.folder("bin") as programs:
        if not programs.has("python"):
            raise Broken("it has no bin/python")
    if not folder.has(_LOCK):
        raise Broken(f"it has no {_LOCK}")
    for parent in layer.parents:
        try:
            with layer_folder(root, parent.called.owner, parent.layer):
                pass
        except PermissionError:
            continue  # not ours to look at; whoever may use it will see
        except OSError as error:
            raise Broken(f"its parent {parent.called} is gone: layer {parent.layer}") from error


def _labelled(known: Environment, label: Label) -> Environment:
    return replace(
        known,
        visibility=label.visibility,
        user_group=label.user_group,
        description=label.description,
        deprecated=label.deprecated,
        created_at=label.created_at,
        updated_at=label.updated_at or label.created_at,
    )


def _described(known: Environment, layer: Layer) -> Environment:
    return replace(
        known,
        parent=str(layer.parents[0].called) if layer.parents else "",
        python_version=layer.python_version,
        lock_hash=layer.lock_hash,
        packages=layer.packages,
        size_bytes=layer.size_bytes,
    )


def _require_absent(error: OSError) -> None:
    if error.errno not in _NONE_THERE:
        raise error
