"""Keeps directories open while their entries are read, so that no link or rename leads elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from hai_backend.environments.errors import BrokenEnvironment

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OpenDirectory:
    """An open directory. Its methods raise OSError for entries that do not exist or may not be read."""

    def __init__(self, descriptor: int, bytes_counter: list[int] | None = None) -> None:
        self._fd = descriptor
        # Shared with subdirectories
        self._bytes_read = bytes_counter if bytes_counter is not None else [0]

    @property
    def bytes_read(self) -> int:
        """Bytes of texts that were read here and in subdirectories."""
        return self._bytes_read[0]

    def names(self, limit: int) -> list[str]:
        """Returns at most `limit` entries, without those that begin with a dot, which belong to haienv."""
        with os.scandir(self._fd) as entries:
            found = (entry.name for entry in islice(entries, limit))
            return sorted(name for name in found if not name.startswith("."))

    def owner(self) -> int:
        """Returns the uid of the owner."""
        return os.fstat(self._fd).st_uid

    @contextmanager
    def directory(self, name: str) -> Iterator[OpenDirectory]:
        """Opens a subdirectory, but no link to one."""
        descriptor = os.open(name, _DIRECTORY, dir_fd=self._fd)
        try:
            yield OpenDirectory(descriptor, self._bytes_read)
        finally:
            os.close(descriptor)

    @contextmanager
    def file(self, name: str) -> Iterator[int]:
        """Opens a regular file. Raises BrokenEnvironment for any other kind of entry."""
        descriptor = os.open(name, _FILE, dir_fd=self._fd)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BrokenEnvironment(f"{name} is not a file")
            yield descriptor
        finally:
            os.close(descriptor)

    def text(self, name: str, limit: int) -> str:
        """Reads a regular file of at most `limit` bytes. Raises BrokenEnvironment for anything else."""
        with self.file(name) as descriptor:
            data = _read_at_most(descriptor, limit + 1)
        self._bytes_read[0] += len(data)
        if len(data) > limit:
            raise BrokenEnvironment(f"{name} has more than {limit} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BrokenEnvironment(f"{name} is not UTF-8") from error

    def link(self, name: str) -> str:
        """Returns the target of a link. Raises OSError when it is not a link."""
        return os.readlink(name, dir_fd=self._fd)

    def has(self, name: str) -> bool:
        """Tells whether there is an entry of this name, without following links."""
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True


@contextmanager
def open_root(root: Path) -> Iterator[OpenDirectory]:
    """Opens the root. Operators chose it, so it may be a link."""
    descriptor = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        yield OpenDirectory(descriptor)
    finally:
        os.close(descriptor)


def _read_at_most(descriptor: int, limit: int) -> bytes:
    parts: list[bytes] = []
    remaining = limit
    while remaining > 0 and (part := os.read(descriptor, min(remaining, 1 << 20))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)
