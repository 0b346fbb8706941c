"""Unpacks images of layers onto a node's own disk, as a program of its own: `python -m … ASKED` with a JSON object.

So it can be ended at any moment, and it was: what is being unpacked or deleted lies in directories that nobody reads,
and has its name only when it is whole, compared with its hash, and on the disk. One works at a time. What is least
recently used goes when there is no room, but nothing that a process holds. An image may be hostile: it is read as a
stream, and nothing in it leads out of its directory.
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
    Wanted,
    copies,
    lock,
    own,
    place_of,
    record,
    recorded,
    wanted_at,
)
from hai_backend.environments.errors import Broken
from hai_backend.environments.open_directories import opened
from hai_backend.environments.parse import Image
from hai_backend.environments.read import IMAGE, layer_folder

_MOST_MEMORY = 2 << 30  # headers of a hostile archive are read as a whole
_CHUNK = 1 << 20
_PYTHON = re.compile(r"bin/python[0-9.]*")


def fetch(root: Path, place: Path, limit: int, layers: Sequence[tuple[str, str]]) -> None:
    """Copies of these layers below `place`, which holds at most `limit` bytes of this account. Raises Broken."""
    mine = own(place)
    every = [wanted for owner, layer in layers if (wanted := wanted_at(root, owner, layer))]
    with _alone(mine):
        _clean(mine)
        missing = [wanted for wanted in every if recorded(place_of(mine, wanted)) != wanted.image]
        for wanted in missing:
            _put_away_another(mine, place_of(mine, wanted))
        _make_room(mine, limit, missing, {place_of(mine, wanted) for wanted in every})
        for wanted in missing:
            _unpack(root, mine, wanted)


@contextmanager
def _alone(mine: Path) -> Iterator[None]:
    descriptor = os.open(mine / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _clean(mine: Path) -> None:
    """What is here now was left by somebody who was killed."""
    for kind in (BUILDING, TRASH):
        shutil.rmtree(mine / kind, ignore_errors=True)
        (mine / kind).mkdir(exist_ok=True)


def _put_away_another(mine: Path, path: Path) -> None:
    """A copy of another image of the same layer."""
    if path.exists() and not _put_away(mine, path):
        raise Broken("a task uses a copy of it that was made of another image")


def _put_away(mine: Path, path: Path) -> bool:
    """False: somebody holds it."""
    held = lock(path, fcntl.LOCK_EX)
    if held is None:
        return False
    try:
        away = mine / TRASH / secrets.token_hex(8)
        path.rename(away)
    finally:
        os.close(held)
    shutil.rmtree(away, ignore_errors=True)
    return True


def _make_room(mine: Path, limit: int, missing: Sequence[Wanted], kept: set[Path]) -> None:
    """Raises Broken when what is used leaves too little."""
    there = sorted(copies(mine), key=lambda each: (each[1], each[0]))
    free = limit - sum(size for *_, size in there) - sum(w.image.unpacked_bytes for w in missing)
    for path, _, size in there:
        if free >= 0:
            return
        if path not in kept and _put_away(mine, path):
            free += size
    if free < 0:
        raise Broken(
            f"its copy has no room: {-free} bytes too many for the limit of {limit}, "
            "and what else is there is in use"
        )


def _unpack(root: Path, mine: Path, wanted: Wanted) -> None:
    work = mine / BUILDING / secrets.token_hex(8)
    work.mkdir()
    try:
        _read(root, wanted, work)
        record(work, wanted.image)
        _to_disk(work)
        target = place_of(mine, wanted)
        target.parent.mkdir(parents=True, exist_ok=True)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _read(root: Path, wanted: Wanted, work: Path) -> None:
    with (
        opened(root) as folder,
        layer_folder(folder, wanted.owner, wanted.layer) as of_layer,
        of_layer.file(IMAGE) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        _extract(file, wanted.image, work)


class _Hashed:
    """A file that is read once, with the hash of what was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def of_all(self) -> str:
        """Of the whole file."""
        while self.read(_CHUNK):
            pass
        return self._hash.hexdigest()


def _extract(file: BinaryIO, image: Image, target: Path) -> None:
    from zstandard import ZstdDecompressor, ZstdError

    hashed, links = _Hashed(file), dict[str, str]()
    try:
        with (
            ZstdDecompressor().stream_reader(hashed) as stream,  # type: ignore[arg-type]
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            _members(archive, image, target, links)
    except (tarfile.TarError, ZstdError, EOFError, ValueError, MemoryError) as error:
        raise Broken(f"its image is damaged: {error}") from error
    if hashed.of_all() != image.sha256:
        raise Broken("its image is damaged: it is not the one that image.toml names")
    _link(target, links)


def _link(target: Path, links: Mapping[str, str]) -> None:
    """Last: nothing was written through one."""
    for name, leads in links.items():
        if any(str(above) in links for above in PurePosixPath(name).parents):
            raise Broken(f"its image holds {name!r}, which lies below a link")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(leads, target / name)


def _members(archive: tarfile.TarFile, image: Image, target: Path, links: dict[str, str]) -> None:
    left, files = image.unpacked_bytes, 0
    for member in archive:
        left, files = left - member.size, files + 1
        if left < 0 or files > image.files:
            raise Broken("its image holds more than image.toml says")
        _check_name(member.name)
        if member.issym() and _stays(member):
            links[member.name] = member.linkname
        elif member.isreg() and member.name not in links:
            _write(archive, member, target / member.name)
        else:
            raise Broken(f"its image holds {member.name!r}, which is no file of an environment")


def _check_name(name: str) -> None:
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise Broken(f"its image holds {name!r}, which leads out of it")


def _stays(link: tarfile.TarInfo) -> bool:
    """A name beside it; only bin/python leads elsewhere, as in the layer itself."""
    beside = "/" not in link.linkname and link.linkname not in ("", ".", "..")
    return beside or _PYTHON.fullmatch(link.name) is not None


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = archive.extractfile(member)
    assert data is not None
    mode = 0o555 if member.mode & 0o100 else 0o444
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb"
    ) as out:
        shutil.copyfileobj(data, out, _CHUNK)


def _to_disk(work: Path) -> None:
    """Of all its files at once: after a loss of power a copy that has its name is whole."""
    descriptor = os.open(work, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)


def main(argv: Sequence[str]) -> int:
    """What cannot be done is said in one line; then the exit code is 1."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, resource.RLIM_INFINITY))
    asked = json.loads(argv[1])
    os.umask(0o022)
    try:
        layers = [(owner, layer) for owner, layer in asked["layers"]]
        fetch(Path(asked["root"]), Path(asked["place"]), asked["limit"], layers)
    except (Broken, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
