"""Reads one environment, or all environments, from their files."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hai_backend.domain.environment import NAME, Environment, EnvironmentName, EnvironmentState
from hai_backend.environments import records
from hai_backend.environments.open_directories import OpenDirectory, open_root
from hai_backend.environments.records import BrokenEnvironment, Image, Layer, Metadata

LAYERS = ".layers"
MAX_PER_USER = 2000
"""The number of environments of one user that are listed."""

IMAGE = "image.tar.zst"
"""The packed form of a layer, in its directory."""

_METADATA, _LAYER, _LOCK, _IMAGE = "env.toml", "layer.toml", "lock.txt", "image.toml"
_MAX_RECORD_BYTES = 256 * 1024
_MAX_BYTES_PER_USER = 2 << 20
"""How many bytes of one user's records are read for a list. Parsing takes a second per MiB; the rest comes from the
store."""
_MAX_LOCK_BYTES = 16 * 1024 * 1024
_MAX_USERS = 100_000
_CURRENT = re.compile(r"\.\./\.layers/([0-9a-f]{24})")
_ABSENT_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

OwnerCheck = Callable[[str, int], bool]
"""Returns whether the directory of a user may belong to a uid."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An environment that exists, but may not be read, or was not read because its owner has too many."""

    full_name: EnvironmentName


ReadResult = Environment | Unreadable | None


def read_environment(root: Path, full_name: EnvironmentName, owner_check: OwnerCheck) -> ReadResult:
    """Read one environment, and verify its lock. Return None if it does not exist."""
    try:
        with open_root(root) as directory, directory.open_directory(full_name.owner) as home:
            return _verify_lock(home, _read(directory, home, full_name, owner_check))
    except PermissionError:
        return Unreadable(full_name)
    except OSError as error:
        _require_absent(error)
        return None


def scan_environments(root: Path, owner_check: OwnerCheck) -> Iterator[Environment | Unreadable]:
    """Yield all environments by owner and name. Omit directories that cannot be read. Do not verify locks."""
    try:
        with open_root(root) as directory:
            for owner in filter(NAME.fullmatch, directory.list_names(_MAX_USERS)):
                with suppress(OSError), directory.open_directory(owner) as home:
                    yield from _scan_owner(directory, home, owner, owner_check)
    except OSError as error:
        _require_absent(error)


def read_metadata(root: OpenDirectory, full_name: EnvironmentName) -> Metadata:
    """Read the metadata of an environment. Raise BrokenEnvironment, or OSError when it does not exist."""
    with (
        root.open_directory(full_name.owner) as home,
        home.open_directory(full_name.name) as directory,
    ):
        return records.parse_metadata(directory.read_text(_METADATA, _MAX_RECORD_BYTES))


def read_current_layer(root: OpenDirectory, full_name: EnvironmentName) -> str:
    """Return the current layer of an environment. Raise BrokenEnvironment, or OSError."""
    with (
        root.open_directory(full_name.owner) as home,
        home.open_directory(full_name.name) as directory,
    ):
        return _current_layer(directory)


@contextmanager
def open_layer(root: OpenDirectory, owner: str, layer: str) -> Iterator[OpenDirectory]:
    """Open the directory of a layer. Raise OSError."""
    with (
        root.open_directory(owner) as home,
        home.open_directory(LAYERS) as layers,
        layers.open_directory(layer) as directory,
    ):
        yield directory


def read_layer(directory: OpenDirectory) -> Layer:
    """Read the record of a layer. Raise BrokenEnvironment, or OSError."""
    return records.parse_layer(directory.read_text(_LAYER, _MAX_RECORD_BYTES))


def read_image(directory: OpenDirectory) -> Image:
    """Read the record of a layer's image. Raise BrokenEnvironment, or FileNotFoundError when it was not packed."""
    return records.parse_image(directory.read_text(_IMAGE, _MAX_RECORD_BYTES))


def read_lock(directory: OpenDirectory, lock_hash: str) -> str:
    """Return the lock of a layer, whose hash must be the one in layer.toml. Raise BrokenEnvironment, or OSError."""
    text = directory.read_text(_LOCK, _MAX_LOCK_BYTES)
    if hashlib.sha256(text.encode()).hexdigest() != lock_hash:
        raise BrokenEnvironment(f"{_LOCK} does not match the hash in {_LAYER}")
    return text


def _verify_lock(home: OpenDirectory, environment: Environment | None) -> Environment | None:
    """Return the environment, as broken if its lock is wrong. Lists omit this check: a lock may have megabytes."""
    if environment is None or environment.state is not EnvironmentState.READY:
        return environment
    try:
        with (
            home.open_directory(LAYERS) as layers,
            layers.open_directory(environment.layer) as directory,
        ):
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
    """Yield the environments of one user. Yield Unreadable after the limit of bytes is reached."""
    limit = home.bytes_read + _MAX_BYTES_PER_USER
    for name in filter(NAME.fullmatch, home.list_names(MAX_PER_USER)):
        full_name = EnvironmentName(owner, name)
        if home.bytes_read > limit:
            yield Unreadable(full_name)
            continue
        result: ReadResult
        try:
            result = _read(root, home, full_name, owner_check)
        except PermissionError:
            result = Unreadable(full_name)
        except OSError:
            continue
        if result is not None:
            yield result


def _read(
    root: OpenDirectory, home: OpenDirectory, full_name: EnvironmentName, owner_check: OwnerCheck
) -> Environment | None:
    """Read one environment. Return it as broken if its files do not match the layout. Raise OSError."""
    environment = Environment(full_name.owner, full_name.name, EnvironmentState.BROKEN)
    with home.open_directory(full_name.name) as directory:
        try:
            environment = _with_metadata(
                environment,
                records.parse_metadata(directory.read_text(_METADATA, _MAX_RECORD_BYTES)),
            )
            environment = replace(environment, layer=_current_layer(directory))
            environment = _with_layer(root, home, environment, owner_check)
        except BrokenEnvironment as error:
            return replace(environment, message=str(error))
    return replace(environment, state=EnvironmentState.READY)


def _with_layer(
    root: OpenDirectory, home: OpenDirectory, environment: Environment, owner_check: OwnerCheck
) -> Environment:
    """Add the properties of the layer. Raise BrokenEnvironment."""
    try:
        with (
            home.open_directory(LAYERS) as layers,
            layers.open_directory(environment.layer) as directory,
        ):
            layer = read_layer(directory)
            _check_layer(root, home, environment.full_name, owner_check, directory, layer)
    except PermissionError:
        raise
    except OSError as error:
        raise BrokenEnvironment(
            f"layer {environment.layer} is incomplete: {error.strerror}"
        ) from error
    return _with_layer_properties(environment, layer)


def _current_layer(directory: OpenDirectory) -> str:
    """Return the layer to which `current` leads. Raise BrokenEnvironment."""
    try:
        match = _CURRENT.fullmatch(directory.read_link("current"))
    except OSError as error:
        raise BrokenEnvironment("current is not a link") from error
    if match is None:
        raise BrokenEnvironment(f"current does not lead to a layer of {LAYERS}")
    return match[1]


def _check_layer(
    root: OpenDirectory,
    home: OpenDirectory,
    full_name: EnvironmentName,
    owner_check: OwnerCheck,
    directory: OpenDirectory,
    layer: Layer,
) -> None:
    """Check owner and contents of a layer, and that its parents exist. Raise BrokenEnvironment, or OSError."""
    if not owner_check(full_name.owner, home.owner_uid()):
        raise BrokenEnvironment(
            f"its directory belongs to uid {home.owner_uid()}, which is not that of {full_name.owner}"
        )
    with directory.open_directory("bin") as bin_directory:
        if not bin_directory.has("python"):
            raise BrokenEnvironment("it has no bin/python")
    if not directory.has(_LOCK):
        raise BrokenEnvironment(f"it has no {_LOCK}")
    for parent in layer.parents:
        try:
            with open_layer(root, parent.full_name.owner, parent.layer):
                pass
        except PermissionError:
            continue  # whoever may read it will notice a missing layer
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


def _with_layer_properties(environment: Environment, layer: Layer) -> Environment:
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
