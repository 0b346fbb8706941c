"""Unpacks images of layers to a node's own disk. This is a program: `python -m … REQUEST`, where REQUEST is JSON.

The program may be killed at any time: it unpacks and deletes in directories that nobody reads, and a copy gets its name
only when it is complete, verified against its hash, and on disk. One process works at a time. When space is needed, the
least recently used copies are deleted, except those that a process has locked. Images may be hostile: they are read as
streams, and no member can be written outside the directory of the copy.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import re
import resource
import secrets
import shutil
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from hai_backend.environments.copies import (
    BUILDING,
    LOCK,
    TRASH,
    LayerRequest,
    copy_path,
    find_packed_layer,
    list_copies,
    lock_directory,
    make_account_directory,
    read_record,
    write_record,
)
from hai_backend.environments.open_directories import open_root
from hai_backend.environments.read import IMAGE, open_layer
from hai_backend.environments.records import BrokenEnvironment, Image

# tarfile reads whole headers into memory, and a hostile archive may have huge ones.
_MAX_MEMORY_BYTES = 2 << 30
_CHUNK = 1 << 20
_PYTHON = re.compile(r"bin/python[0-9.]*")


def copy_layers(
    root: Path, copies_root: Path, limit: int, layers: Sequence[tuple[str, str]]
) -> None:
    """Unpack layers below `copies_root`, with at most `limit` bytes for this account. Raise BrokenEnvironment."""
    directory = make_account_directory(copies_root)
    requests = [
        request for owner, layer in layers if (request := find_packed_layer(root, owner, layer))
    ]
    with _exclusive(directory):
        _remove_leftovers(directory)
        missing = [r for r in requests if read_record(copy_path(directory, r)) != r.image]
        for request in missing:
            _evict_other_image(directory, copy_path(directory, request))
        _free_space(directory, limit, missing, {copy_path(directory, r) for r in requests})
        for request in missing:
            _unpack(root, directory, request)


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(directory: Path) -> None:
    """Remove what a killed process has left."""
    for kind in (BUILDING, TRASH):
        shutil.rmtree(directory / kind, ignore_errors=True)
        (directory / kind).mkdir(exist_ok=True)


def _evict_other_image(directory: Path, path: Path) -> None:
    """Evict a copy of the same layer that was made from another image."""
    if path.exists() and not _evict(directory, path):
        raise BrokenEnvironment("a task uses a copy of it that was made from another image")


def _evict(directory: Path, path: Path) -> bool:
    """Delete a copy. Return False if a process uses the copy."""
    lock_fd = lock_directory(path, fcntl.LOCK_EX)
    if lock_fd is None:
        return False
    try:
        trashed = directory / TRASH / secrets.token_hex(8)
        path.rename(trashed)
    finally:
        os.close(lock_fd)
    shutil.rmtree(trashed, ignore_errors=True)
    return True


def _free_space(
    directory: Path, limit: int, missing: Sequence[LayerRequest], needed: set[Path]
) -> None:
    """Delete least recently used copies until there is enough space. Raise BrokenEnvironment if there never is."""
    copies_by_age = sorted(list_copies(directory), key=lambda copy: (copy[1], copy[0]))
    used_bytes = sum(size for *_, size in copies_by_age)
    free_bytes = limit - used_bytes - sum(each.image.unpacked_bytes for each in missing)
    for path, _, size in copies_by_age:
        if free_bytes >= 0:
            return
        if path not in needed and _evict(directory, path):
            free_bytes += size
    if free_bytes < 0:
        raise BrokenEnvironment(
            f"there is no space for its copy: the limit of {limit} bytes is exceeded by {-free_bytes}, "
            "and all other copies are in use"
        )


def _unpack(root: Path, directory: Path, request: LayerRequest) -> None:
    """Unpack an image into a temporary directory, and give the complete copy its name."""
    build_directory = directory / BUILDING / secrets.token_hex(8)
    build_directory.mkdir()
    try:
        _extract_image(root, request, build_directory)
        write_record(build_directory, request.image)
        _sync(build_directory)
        target = copy_path(directory, request)
        target.parent.mkdir(parents=True, exist_ok=True)
        build_directory.rename(target)
    finally:
        shutil.rmtree(build_directory, ignore_errors=True)


def _extract_image(root: Path, request: LayerRequest, build_directory: Path) -> None:
    with (
        open_root(root) as root_directory,
        open_layer(root_directory, request.owner, request.layer) as layer_files,
        layer_files.open_file(IMAGE) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        _extract(file, request.image, build_directory)


class _HashingReader:
    """Wraps a file that is read once, and hashes the bytes that are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def complete_digest(self) -> str:
        """Read the rest of the file, and return the hash of the whole."""
        while self.read(_CHUNK):
            pass
        return self._hash.hexdigest()


def _extract(file: BinaryIO, image: Image, target: Path) -> None:
    """Extract an image, and compare its hash. Raise BrokenEnvironment if it is damaged."""
    from zstandard import ZstdDecompressor, ZstdError

    reader, links = _HashingReader(file), dict[str, str]()
    try:
        with (
            ZstdDecompressor().stream_reader(reader) as stream,  # type: ignore[arg-type]
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            _extract_members(archive, image, target, links)
    except (tarfile.TarError, ZstdError, EOFError, ValueError, MemoryError) as error:
        raise BrokenEnvironment(f"its image is damaged: {error}") from error
    if reader.complete_digest() != image.sha256:
        raise BrokenEnvironment("its image is damaged: it does not match the hash in image.toml")
    _create_links(target, links)


def _create_links(target: Path, links: Mapping[str, str]) -> None:
    """Create the links last, so that nothing is written through them."""
    for name, link_target in links.items():
        if any(str(parent) in links for parent in PurePosixPath(name).parents):
            raise BrokenEnvironment(f"its image holds {name!r}, which lies below a link")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(link_target, target / name)


def _extract_members(
    archive: tarfile.TarFile, image: Image, target: Path, links: dict[str, str]
) -> None:
    """Write the files of an image, and add its links to `links`. Raise BrokenEnvironment."""
    remaining_bytes, files = image.unpacked_bytes, 0
    for member in archive:
        remaining_bytes, files = remaining_bytes - member.size, files + 1
        if remaining_bytes < 0 or files > image.files:
            raise BrokenEnvironment("its image holds more than image.toml says")
        _check_name(member.name)
        if member.issym() and _is_allowed_link(member):
            links[member.name] = member.linkname
        elif member.isreg() and member.name not in links:
            _write(archive, member, target / member.name)
        else:
            raise BrokenEnvironment(
                f"its image holds {member.name!r}, which is not a file of an environment"
            )


def _check_name(name: str) -> None:
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise BrokenEnvironment(f"its image holds {name!r}, which leads out of it")


def _is_allowed_link(link: tarfile.TarInfo) -> bool:
    """Return whether a link leads to a name in the same directory; bin/python may lead elsewhere, as in the layer."""
    is_beside = "/" not in link.linkname and link.linkname not in ("", ".", "..")
    return is_beside or _PYTHON.fullmatch(link.name) is not None


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = archive.extractfile(member)
    assert data is not None
    mode = 0o555 if member.mode & 0o100 else 0o444
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb"
    ) as out:
        shutil.copyfileobj(data, out, _CHUNK)


def _sync(build_directory: Path) -> None:
    """Write all files to disk, so that a copy that has its name is complete even after a power loss."""
    descriptor = os.open(build_directory, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)


def main(argv: Sequence[str]) -> int:
    """Unpack the requested layers. If that fails, print the error in one line and return 1."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, resource.RLIM_INFINITY))
    request = json.loads(argv[1])
    os.umask(0o022)
    try:
        layers = [(owner, layer) for owner, layer in request["layers"]]
        copy_layers(Path(request["root"]), Path(request["place"]), request["limit"], layers)
    except (BrokenEnvironment, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
