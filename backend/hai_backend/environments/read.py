"""Reads one environment, or all of them, from their files."""

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
from hai_backend.environments.errors import BrokenEnvironment
from hai_backend.environments.open_directories import OpenDirectory, open_root
from hai_backend.environments.parse import Image, Layer, Metadata

LAYERS = ".layers"
MAX_PER_USER = 2000
"""Environments of one user that are listed."""

IMAGE = "image.tar.zst"
"""The packed form of a layer, in its directory."""

_METADATA, _LAYER, _LOCK, _IMAGE = "env.toml", "layer.toml", "lock.txt", "image.toml"
_MAX_RECORD_BYTES = 256 * 1024
_MAX_BYTES_PER_USER = 2 << 20
"""The limit of records of one user that are read for a list, which takes a second per MiB; the rest comes from the
store."""
_MAX_LOCK_BYTES = 16 * 1024 * 1024
_MAX_USERS = 100_000
_CURRENT = re.compile(r"\.\./\.layers/([0-9a-f]{24})")
_ABSENT_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

OwnerCheck = Callable[[str, int], bool]
"""Tells whether the directory of a user may belong to a uid."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An environment that exists but may not be read, or is skipped because its owner has too many."""

    full_name: EnvironmentName


ReadResult = Environment | Unreadable | None


def read_environment(root: Path, full_name: EnvironmentName, owner_check: OwnerCheck) -> ReadResult:
    """Reads one environment and verifies its lock; None if it does not exist."""
    try:
        with open_root(root) as directory, directory.directory(full_name.owner) as home:
            return _verify_lock(home, _read(directory, home, full_name, owner_check))
    except PermissionError:
        return Unreadable(full_name)
    except OSError as error:
        _require_absent(error)
        return None


def scan(root: Path, owner_check: OwnerCheck) -> Iterator[Environment | Unreadable]:
    """Yields all environments by owner and name, without verifying locks. Omits directories that cannot be read."""
    try:
        with open_root(root) as directory:
            for owner in filter(NAME.fullmatch, directory.names(_MAX_USERS)):
                with suppress(OSError), directory.directory(owner) as home:
                    yield from _scan_owner(directory, home, owner, owner_check)
    except OSError as error:
        _require_absent(error)


def read_metadata(root: OpenDirectory, full_name: EnvironmentName) -> Metadata:
    """Raises BrokenEnvironment, or OSError when it does not exist."""
    with root.directory(full_name.owner) as home, home.directory(full_name.name) as directory:
        return parse.metadata(directory.text(_METADATA, _MAX_RECORD_BYTES))


def current_layer(root: OpenDirectory, full_name: EnvironmentName) -> str:
    """Returns the current layer of an environment. Raises BrokenEnvironment, or OSError."""
    with root.directory(full_name.owner) as home, home.directory(full_name.name) as directory:
        return _current_layer(directory)


@contextmanager
def layer_directory(root: OpenDirectory, owner: str, layer: str) -> Iterator[OpenDirectory]:
    """Opens the directory of a layer. Raises OSError."""
    with (
        root.directory(owner) as home,
        home.directory(LAYERS) as layers,
        layers.directory(layer) as directory,
    ):
        yield directory


def read_layer(directory: OpenDirectory) -> Layer:
    """Raises BrokenEnvironment, or OSError."""
    return parse.layer(directory.text(_LAYER, _MAX_RECORD_BYTES))


def read_image(directory: OpenDirectory) -> Image:
    """Raises BrokenEnvironment, or OSError: FileNotFoundError when it was not packed."""
    return parse.image(directory.text(_IMAGE, _MAX_RECORD_BYTES))


def read_lock(directory: OpenDirectory, lock_hash: str) -> str:
    """Returns the lock of a layer, whose hash must be the one in layer.toml. Raises BrokenEnvironment, or OSError."""
    text = directory.text(_LOCK, _MAX_LOCK_BYTES)
    if hashlib.sha256(text.encode()).hexdigest() != lock_hash:
        raise BrokenEnvironment(f"{_LOCK} does not match the hash in {_LAYER}")
    return text


def _verify_lock(home: OpenDirectory, environment: Environment | None) -> Environment | None:
    """Verifies the lock of an environment. Not done for lists: a lock may have megabytes."""
    if environment is None or environment.state is not EnvironmentState.READY:
        return environment
    try:
        with home.directory(LAYERS) as layers, layers.directory(environment.layer) as directory:
            read_lock(directory, environment.lock_hash)
    except BrokenEnvironment as error:
        return replace(environment, state=EnvironmentState.BROKEN, message=str(error))
    except OSError as error:
        problem = f"its {_LOCK} cannot be read: {error.strerror}"
        return replace(environment, state=EnvironmentState.BROKEN, message=problem)
    return environment


def _scan_owner(
    root: OpenDirectory, home: OpenDirectory, owner: str, owner_check: OwnerCheck
) -> Iterator[Environment | Unreadable]:
    limit = home.bytes_read + _MAX_BYTES_PER_USER
    for name in filter(NAME.fullmatch, home.names(MAX_PER_USER)):
        full_name = EnvironmentName(owner, name)
        if home.bytes_read > limit:
            yield Unreadable(full_name)
            continue
        found: ReadResult
        try:
            found = _read(root, home, full_name, owner_check)
        except PermissionError:
            found = Unreadable(full_name)
        except OSError:
            continue
        if found is not None:
            yield found


def _read(
    root: OpenDirectory, home: OpenDirectory, full_name: EnvironmentName, owner_check: OwnerCheck
) -> Environment | None:
    environment = Environment(full_name.owner, full_name.name, EnvironmentState.BROKEN)
    with home.directory(full_name.name) as directory:
        try:
            environment = _with_metadata(
                environment, parse.metadata(directory.text(_METADATA, _MAX_RECORD_BYTES))
            )
            environment = replace(environment, layer=_current_layer(directory))
            environment = _with_layer(root, home, environment, owner_check)
        except BrokenEnvironment as error:
            return replace(environment, message=str(error))
    return replace(environment, state=EnvironmentState.READY)


def _with_layer(
    root: OpenDirectory, home: OpenDirectory, environment: Environment, owner_check: OwnerCheck
) -> Environment:
    """Adds the properties of the layer. Raises BrokenEnvironment."""
    try:
        with home.directory(LAYERS) as layers, layers.directory(environment.layer) as directory:
            layer = read_layer(directory)
            _check(root, home, environment.full_name, owner_check, directory, layer)
    except PermissionError:
        raise
    except OSError as error:
        raise BrokenEnvironment(
            f"layer {environment.layer} is incomplete: {error.strerror}"
        ) from error
    return _with_layer_facts(environment, layer)


def _current_layer(directory: OpenDirectory) -> str:
    try:
        match = _CURRENT.fullmatch(directory.link("current"))
    except OSError as error:
        raise BrokenEnvironment("current is not a link") from error
    if match is None:
        raise BrokenEnvironment(f"current does not lead to a layer of {LAYERS}")
    return match[1]


def _check(
    root: OpenDirectory,
    home: OpenDirectory,
    full_name: EnvironmentName,
    owner_check: OwnerCheck,
    directory: OpenDirectory,
    layer: Layer,
) -> None:
    if not owner_check(full_name.owner, home.owner()):
        raise BrokenEnvironment(
            f"its directory belongs to uid {home.owner()}, which is not that of {full_name.owner}"
        )
    with directory.directory("bin") as bin_directory:
        if not bin_directory.has("python"):
            raise BrokenEnvironment("it has no bin/python")
    if not directory.has(_LOCK):
        raise BrokenEnvironment(f"it has no {_LOCK}")
    for parent in layer.parents:
        try:
            with layer_directory(root, parent.full_name.owner, parent.layer):
                pass
        except PermissionError:
            continue  # the server may not read it; those who may will notice
        except OSError as error:
            raise BrokenEnvironment(
                f"its parent {parent.full_name} was deleted: layer {parent.layer}"
            ) from error


def _with_metadata(environment: Environment, metadata: Metadata) -> Environment:
    return replace(
        environment,
        visibility=metadata.visibility,
        user_group=metadata.user_group,
        description=metadata.description,
        deprecated=metadata.deprecated,
        created_at=metadata.created_at,
        updated_at=metadata.updated_at or metadata.created_at,
    )


def _with_layer_facts(environment: Environment, layer: Layer) -> Environment:
    return replace(
        environment,
        parent=str(layer.parents[0].full_name) if layer.parents else "",
        python_version=layer.python_version,
        lock_hash=layer.lock_hash,
        packages=layer.packages,
        size_bytes=layer.size_bytes,
    )


def _require_absent(error: OSError) -> None:
    if error.errno not in _ABSENT_ERRORS:
        raise error
