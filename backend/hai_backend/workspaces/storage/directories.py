"""Opens directories below a root that users' programs write into. Every step starts at an open directory and follows no
symbolic link, so nothing outside of the root is ever touched, whatever changes meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Directories:
    """Opens directories by path, and keeps the last one and its parents open. Not thread-safe."""

    def __init__(self, root: Path, *, owner: int = 0) -> None:
        self.root = os.open(root, DIRECTORY)
        self._owner = owner
        self._open: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close_below(0)
        os.close(self.root)

    def at(self, folder: str) -> int:
        """Opens a directory; it stays open until the next call. Raises OSError, also for a link or a file."""
        return self._walk(folder, make=False)

    def make(self, folder: str) -> int:
        """Opens a directory, creates what is missing, and sets aside what is not a directory."""
        return self._walk(folder, make=True)

    def _walk(self, folder: str, *, make: bool) -> int:
        names = folder.split("/") if folder else []
        depth = 0
        while depth < min(len(names), len(self._open)) and self._open[depth][0] == names[depth]:
            depth += 1
        self._close_below(depth)
        for part in names[depth:]:
            above = self._open[-1][1] if self._open else self.root
            self._open.append((part, self._open_step(part, above, make=make)))
        return self._open[-1][1] if self._open else self.root

    def _open_step(self, name: str, above: int, *, make: bool) -> int:
        try:
            return os.open(name, DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
        except OSError:
            if not make:
                raise
            set_aside(name, above)
        with suppress(FileExistsError):  # another thread creates it, too
            os.mkdir(name, 0o755, dir_fd=above)
        made = os.open(name, DIRECTORY, dir_fd=above)
        chown_to(made, self._owner)
        return made

    def _close_below(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def chown_to(descriptor: int, owner: int) -> None:
    """Gives a file to its user, if the server runs as root; 0: does nothing."""
    if owner and os.geteuid() == 0:
        os.fchown(descriptor, owner, owner)


def chown_entry(name: str, folder: int, owner: int) -> None:
    """Does the same for an entry of an open directory; for a link, for the link itself."""
    if owner and os.geteuid() == 0:
        os.chown(name, owner, owner, dir_fd=folder, follow_symlinks=False)


def set_aside(name: str, folder: int) -> str:
    """Renames an entry to a free name beside it, where the next scan finds it. Returns the name."""
    stem = name.encode()[:200].decode(errors="ignore")
    for number in range(1, 1000):
        new_name = f"{stem}.conflict-{number}"
        try:
            os.stat(new_name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=folder)
            return new_name
    raise FileExistsError(f"{name} has a thousand conflicts already")
