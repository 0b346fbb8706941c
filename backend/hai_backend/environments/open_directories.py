"""Reads entries relative to open directories, so that no link or rename can lead a reader elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from hai_backend.environments.records import BrokenEnvironment

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OpenDirectory:
    """An open directory. Its methods raise OSError for entries that do not exist or may not be read."""

    def __init__(self, descriptor: int, bytes_counter: list[int] | None = None) -> None:
        self._fd = descriptor
        # A list, because subdirectories share the counter
        self._bytes_read = bytes_counter if bytes_counter is not None else [0]

    @property
    def bytes_read(self) -> int:
        """The number of bytes that were read from texts here and in subdirectories."""
        return self._bytes_read[0]

    def list_names(self, limit: int) -> list[str]:
        """Return the names of at most `limit` entries, without those of haienv, which begin with a dot."""
        with os.scandir(self._fd) as entries:
            names = (entry.name for entry in islice(entries, limit))
            return sorted(name for name in names if not name.startswith("."))

    def owner_uid(self) -> int:
        """Return the uid of the directory's owner."""
        return os.fstat(self._fd).st_uid

    @contextmanager
    def open_directory(self, name: str) -> Iterator[OpenDirectory]:
        """Open a subdirectory. Raise OSError for a link to one."""
        descriptor = os.open(name, _DIRECTORY, dir_fd=self._fd)
        try:
            yield OpenDirectory(descriptor, self._bytes_read)
        finally:
            os.close(descriptor)

    @contextmanager
    def open_file(self, name: str) -> Iterator[int]:
        """Open a regular file. Raise BrokenEnvironment for any other kind of entry."""
        descriptor = os.open(name, _FILE, dir_fd=self._fd)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BrokenEnvironment(f"{name} is not a file")
            yield descriptor
        finally:
            os.close(descriptor)

    def read_text(self, name: str, limit: int) -> str:
        """Read a regular file of at most `limit` bytes. Raise BrokenEnvironment for anything else."""
        with self.open_file(name) as descriptor:
            data = _read_at_most(descriptor, limit + 1)
        self._bytes_read[0] += len(data)
        if len(data) > limit:
            raise BrokenEnvironment(f"{name} has more than {limit} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BrokenEnvironment(f"{name} is not UTF-8") from error

    def read_link(self, name: str) -> str:
        """Return the target of a link. Raise OSError when it is not a link."""
        return os.readlink(name, dir_fd=self._fd)

    def has(self, name: str) -> bool:
        """Return whether there is an entry of this name, which may be a link to nowhere."""
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True


@contextmanager
def open_root(root: Path) -> Iterator[OpenDirectory]:
    """Open the root. It may be a link, because operators have chosen it."""
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
