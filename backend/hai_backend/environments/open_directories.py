"""Directories held open while their entries are read, so that no link and no rename leads anywhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from hai_backend.environments.errors import Broken

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """An open directory. Raises OSError for what is not there or may not be read."""

    def __init__(self, descriptor: int, read: list[int] | None = None) -> None:
        self._fd = descriptor
        self._read = read if read is not None else [0]  # shared with those below

    @property
    def bytes_read(self) -> int:
        """Of texts, here and below."""
        return self._read[0]

    def names(self, most: int) -> list[str]:
        """Entries but those with a dot first, which are haienv's own; of a flood of them only so many."""
        with os.scandir(self._fd) as entries:
            found = (entry.name for entry in islice(entries, most))
            return sorted(name for name in found if not name.startswith("."))

    def owner(self) -> int:
        """The uid that it belongs to."""
        return os.fstat(self._fd).st_uid

    @contextmanager
    def folder(self, name: str) -> Iterator[Folder]:
        """One directory below; a link to one is none."""
        descriptor = os.open(name, _FOLDER, dir_fd=self._fd)
        try:
            yield Folder(descriptor, self._read)
        finally:
            os.close(descriptor)

    @contextmanager
    def file(self, name: str) -> Iterator[int]:
        """The descriptor of a regular file. Raises Broken for anything else that is there."""
        descriptor = os.open(name, _FILE, dir_fd=self._fd)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Broken(f"{name} is not a file")
            yield descriptor
        finally:
            os.close(descriptor)

    def text(self, name: str, most: int) -> str:
        """A regular file of at most `most` bytes. Raises Broken for anything else that is there."""
        with self.file(name) as descriptor:
            data = _read(descriptor, most + 1)
        self._read[0] += len(data)
        if len(data) > most:
            raise Broken(f"{name} has more than {most} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Broken(f"{name} is not UTF-8") from error

    def link(self, name: str) -> str:
        """The text of a link. Raises OSError when it is none."""
        return os.readlink(name, dir_fd=self._fd)

    def has(self, name: str) -> bool:
        """Whether there is an entry of this name; a link's target is not looked at."""
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True


@contextmanager
def opened(root: Path) -> Iterator[Folder]:
    """The root, which the operators chose: it may be a link."""
    descriptor = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int, most: int) -> bytes:
    parts: list[bytes] = []
    left = most
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
