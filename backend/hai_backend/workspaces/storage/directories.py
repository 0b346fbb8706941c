"""Directories below a root that programs of users write into: every step is taken from an open directory, and none
follows a symbolic link. So nothing outside the root is ever touched, whatever changes under us.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Directories:
    """Opens directories by path and keeps the last one, with those above it, open. One thread at a time."""

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
        """No directory is open after this."""
        self._leave(0)
        os.close(self.root)

    def at(self, folder: str) -> int:
        """The open directory; it stays so until the next call. Raises OSError; a link or a file is none."""
        return self._walk(folder, make=False)

    def make(self, folder: str) -> int:
        """The same; what is missing is made, and what is no directory is set aside."""
        return self._walk(folder, make=True)

    def _walk(self, folder: str, *, make: bool) -> int:
        parts = folder.split("/") if folder else []
        kept = 0
        while kept < min(len(parts), len(self._open)) and self._open[kept][0] == parts[kept]:
            kept += 1
        self._leave(kept)
        for part in parts[kept:]:
            above = self._open[-1][1] if self._open else self.root
            self._open.append((part, self._enter(part, above, make=make)))
        return self._open[-1][1] if self._open else self.root

    def _enter(self, name: str, above: int, *, make: bool) -> int:
        try:
            return os.open(name, DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
        except OSError:
            if not make:
                raise
            set_aside(name, above)
        with suppress(FileExistsError):  # another thread makes it, too
            os.mkdir(name, 0o755, dir_fd=above)
        made = os.open(name, DIRECTORY, dir_fd=above)
        give(made, self._owner)
        return made

    def _leave(self, kept: int) -> None:
        while len(self._open) > kept:
            os.close(self._open.pop()[1])


def give(descriptor: int, owner: int) -> None:
    """To its user, where a server may; 0: nobody in particular."""
    if owner and os.geteuid() == 0:
        os.fchown(descriptor, owner, owner)


def give_named(name: str, folder: int, owner: int) -> None:
    """The same for an entry of an open directory; of a link, for the link itself."""
    if owner and os.geteuid() == 0:
        os.chown(name, owner, owner, dir_fd=folder, follow_symlinks=False)


def set_aside(name: str, folder: int) -> str:
    """Give what is there another name beside it; whoever looks next finds it. Answers the name."""
    stem = name.encode()[:200].decode(errors="ignore")
    for number in range(1, 1000):
        other = f"{stem}.conflict-{number}"
        try:
            os.stat(other, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
            return other
    raise FileExistsError(f"{name} has a thousand conflicts already")
