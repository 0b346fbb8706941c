"""Opens the parent directory of a path part by part and never through a link, so that it stays inside the root."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Directories:
    """Opens directories below a root. The last one stays open."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: tuple[str, int] | None = None

    def open_parent(self, path: str, make: bool = False) -> tuple[int, str]:
        """Return the open parent directory of a path and its name there. With `make` it is created. Raises OSError."""
        parent, _, name = path.rpartition("/")
        if self._open is None or self._open[0] != parent:
            self.close()
            self._open = (parent, _open_directory(self._root, parent, make))
        return self._open[1], name

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None


def _open_directory(root: Path, folder: str, make: bool) -> int:
    """Open a directory below a root part by part, without following links."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for part in folder.split("/") if folder else ():
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            below = os.open(part, _FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def lstat_or_none(name: str, folder: int) -> os.stat_result | None:
    """Return the lstat result of a name, or None if it does not exist."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def describe_os_error(error: OSError) -> str:
    """Return why a path could not be changed."""
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return "the directory stays: it holds files that are not synced"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a directory in its path is a link or a file"
    return os.strerror(error.errno) if error.errno else str(error)
