"""Finds and locks the copies of packed layers on a node's own disk.

Operators choose a directory, and each account has its own directory in it: <root>/<uid>/<owner>/.layers/<layer>. The
last parts are as on shared storage, so that the relative paths between layers are valid. A copy is complete once it has
this name. A process that uses a copy holds a lock on its directory; the kernel releases the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hai_backend.environments import records
from hai_backend.environments.open_directories import open_root
from hai_backend.environments.read import LAYERS, open_layer, read_image
from hai_backend.environments.records import BrokenEnvironment, Image

BUILDING, TRASH, LOCK, RECORD = ".unpacking", ".trash", ".lock", "copy.toml"
_MAX_RECORD_BYTES = 4096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LayerRequest:
    """A packed layer that a program needs on this node."""

    owner: str
    layer: str
    image: Image


def find_packed_layer(root: Path, owner: str, layer: str) -> LayerRequest | None:
    """Return the request for a layer; None if the layer was not packed. Raise BrokenEnvironment, or OSError."""
    with open_root(root) as directory, open_layer(directory, owner, layer) as layer_files:
        try:
            return LayerRequest(owner, layer, read_image(layer_files))
        except FileNotFoundError:
            return None


def make_account_directory(copies_root: Path) -> Path:
    """Create this account's directory below that of the operators. Raise BrokenEnvironment if it is unsafe."""
    directory = copies_root / str(os.geteuid())
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise BrokenEnvironment(f"{directory} cannot be created: {error.strerror}") from error
    is_private = (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o22
    )
    if not is_private:
        raise BrokenEnvironment(
            f"{directory} is not a directory that only uid {os.geteuid()} may write"
        )
    return directory


def copy_path(account_directory: Path, request: LayerRequest) -> Path:
    return account_directory / request.owner / LAYERS / request.layer


def write_record(directory: Path, image: Image) -> None:
    """Record the image of a copy. The modification time of this file is the last use of the copy."""
    record = {"schema": records.SCHEMA, **asdict(image)}
    # JSON and TOML write these values in the same way.
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in record.items())
    (directory / RECORD).write_text("".join(lines))


def read_record(directory: Path) -> Image | None:
    """Return the image of a copy; None if there is no copy."""
    try:
        with open_root(directory) as copy_directory:
            return records.parse_image(copy_directory.read_text(RECORD, _MAX_RECORD_BYTES))
    except (OSError, BrokenEnvironment):
        return None


def lock_copies(account_directory: Path, requests: list[LayerRequest]) -> list[int] | None:
    """Lock copies until the returned descriptors are closed. Return None if one of the copies does not exist."""
    descriptors: list[int] = []
    for request in requests:
        directory = copy_path(account_directory, request)
        descriptor = lock_directory(directory, fcntl.LOCK_SH)
        if descriptor is not None:
            descriptors.append(descriptor)
        if descriptor is None or read_record(directory) != request.image:
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        os.utime(directory / RECORD)
    return descriptors


def lock_directory(directory: Path, mode: int) -> int | None:
    """Lock a directory that still has its name. Return None if it does not exist or has a conflicting lock."""
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(directory)):
            return descriptor
    except OSError:  # including a conflicting lock
        pass
    os.close(descriptor)
    return None


def list_copies(account_directory: Path) -> Iterator[tuple[Path, float, int]]:
    """Yield directory, time of last use and bytes of each copy."""
    for directory in account_directory.glob(f"[!.]*/{LAYERS}/*"):
        image = read_record(directory)
        if image is None:
            yield directory, 0.0, 0
            continue
        yield directory, (directory / RECORD).lstat().st_mtime, image.unpacked_bytes
