"""Files of a tree go, by many threads where storage is slow; then directories, from the inside out."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hai_backend.domain.workspace import folder_of, joined
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.workers import NAME_SECONDS, PART, Walker, Workers, parts

_REMOVED = 10  # names that are looked at meanwhile


class Inside(NamedTuple):
    """Names in a directory that are no directories themselves."""

    folder: str
    names: list[str]


Remove = Callable[[int, Inside], int]
"""Removes of these, in an open directory, what may go; answers the bytes that stay, at least 1 when anything does."""


def clear(root: Path, remove: Remove, may_go: Callable[[str], bool]) -> int:
    """Answers the bytes that stay. A directory stays that is not empty, or may not go. Raises OSError."""
    left: dict[str, int] = {"": 0}
    with Directories(root) as folders:
        with closing(Workers(partial(_Remover, root, remove), NAME_SECONDS)) as hands:
            for folder, stays in hands.each(_Remover.remove, _inside(folders, left)):
                left[folder] += stays
        for folder in list(left)[:0:-1]:
            if left[folder] == 0 and may_go(folder):
                os.rmdir(folder.rpartition("/")[2], dir_fd=folders.at(folder_of(folder)))
            else:
                left[folder_of(folder)] += left[folder] + 1
    return left[""]


def _inside(folders: Directories, found: dict[str, int]) -> Iterator[Inside]:
    """What is in all directories; adds each of them to those that were found, outer ones first."""
    waiting = deque([""])
    while waiting:
        folder = waiting.popleft()
        inner, names = _listed(folders.at(folder))
        for name in inner:
            found[joined(folder, name)] = 0
            waiting.append(joined(folder, name))
        for part in parts(names, PART):
            yield Inside(folder, part)


def _listed(descriptor: int) -> tuple[list[str], list[str]]:
    inner: list[str] = []
    names: list[str] = []
    with os.scandir(descriptor) as found:
        for item in found:
            (inner if item.is_dir(follow_symlinks=False) else names).append(item.name)
    return inner, names


class _Remover(Walker):
    """One thread at a time."""

    def __init__(self, root: Path, remove: Remove) -> None:
        super().__init__(Directories(root))
        self._remove = remove

    def remove(self, inside: Inside) -> tuple[str, int]:
        self.done += _REMOVED * len(inside.names)
        return inside.folder, self._remove(self.folders.at(inside.folder), inside)


def remove_tree(root: Path) -> None:
    """All of it, as far as it can be."""
    with suppress(OSError):
        clear(root, _remove_all, lambda folder: True)
    shutil.rmtree(root, ignore_errors=True)  # itself, and what came meanwhile


def _remove_all(folder: int, inside: Inside) -> int:
    for name in inside.names:
        try:  # noqa: SIM105 - it is done for each file of a tree
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
    return 0
