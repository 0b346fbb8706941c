"""Opens directories below a root into which programs of users write.

Each part of a path is opened relative to its open parent, and no symbolic link is followed. So a program that changes
the tree at the same time cannot lead the server out of the root.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Directories:
    """Opens directories by path. Keeps the last one and its parents open. Not thread-safe."""

    def __init__(self, root: Path, *, owner: int = 0) -> None:
        self.root = os.open(root, OPEN_DIRECTORY)
        self._owner = owner
        self._open: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close_below(0)
        os.close(self.root)

    def open(self, folder: str) -> int:
        """Open a directory, which stays open until the next call. Raise OSError, also for a link or a file."""
        return self._walk(folder, make=False)

    def open_or_create(self, folder: str) -> int:
        """Open a directory. Create missing directories, and rename a file or link that has the name of one."""
        return self._walk(folder, make=True)

    def _walk(self, folder: str, *, make: bool) -> int:
        names = folder.split("/") if folder else []
        depth = 0
        while depth < min(len(names), len(self._open)) and self._open[depth][0] == names[depth]:
            depth += 1
        self._close_below(depth)
        for part in names[depth:]:
            parent = self._open[-1][1] if self._open else self.root
            self._open.append((part, self._open_step(part, parent, make=make)))
        return self._open[-1][1] if self._open else self.root

    def _open_step(self, name: str, parent: int, *, make: bool) -> int:
        """Open one directory below an open one. With `make`, create it if necessary."""
        try:
            return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        except OSError:
            if not make:
                raise
            set_aside(name, parent)
        # Another thread may have created the directory through its own Directories.
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
        descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
        chown_to(descriptor, self._owner)
        return descriptor

    def _close_below(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def chown_to(descriptor: int, owner: int) -> None:
    """Change the owner of an open file. Do nothing if `owner` is 0 or the server does not run as root."""
    if owner and os.geteuid() == 0:
        os.fchown(descriptor, owner, owner)


def chown_entry(name: str, directory: int, owner: int) -> None:
    """Change the owner of an entry in an open directory as `chown_to` does. Do not follow links."""
    if owner and os.geteuid() == 0:
        os.chown(name, owner, owner, dir_fd=directory, follow_symlinks=False)


def set_aside(name: str, directory: int) -> str:
    """Rename an entry to an unused name in the same directory, and return that name. The next scan commits it."""
    stem = name.encode()[:200].decode(errors="ignore")
    for number in range(1, 1000):
        new_name = f"{stem}.conflict-{number}"
        try:
            os.stat(new_name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=directory)
            return new_name
    raise FileExistsError(
        f"{name} cannot be renamed: {stem}.conflict-1 to {stem}.conflict-999 exist"
    )
