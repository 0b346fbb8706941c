"""Removes a tree: its files, in many threads where storage is slow, and then its directories, innermost first."""

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
from hai_backend.workspaces.storage.workers import (
    FILES_PER_BATCH,
    NAME_SECONDS,
    TreeWorker,
    WorkerPool,
    split_batches,
)

_WORK_PER_FILE = 10  # removing a file takes as long as reading so many names


class DirectoryFiles(NamedTuple):
    """A directory, and names of some of its entries that are not directories."""

    folder: str
    names: list[str]


RemoveFiles = Callable[[int, DirectoryFiles], int]
"""Removes those files in an open directory that may be removed. Returns the remaining bytes, at least 1 if any file
remains."""


def remove_files(root: Path, remove: RemoveFiles, may_remove: Callable[[str], bool]) -> int:
    """Remove files, then empty directories that may be removed. Return the remaining bytes. Raise OSError."""
    remaining: dict[str, int] = {"": 0}
    with Directories(root) as folders:
        with closing(WorkerPool(partial(_FileRemover, root, remove), NAME_SECONDS)) as pool:
            for folder, remaining_bytes in pool.map_ordered(
                _FileRemover.remove, _list_files_by_directory(folders, remaining)
            ):
                remaining[folder] += remaining_bytes
        # Innermost directories come first, and the root is left out. A remaining directory counts as one byte.
        for folder in list(remaining)[:0:-1]:
            if remaining[folder] == 0 and may_remove(folder):
                os.rmdir(folder.rpartition("/")[2], dir_fd=folders.open(folder_of(folder)))
            else:
                remaining[folder_of(folder)] += remaining[folder] + 1
    return remaining[""]


def _list_files_by_directory(
    folders: Directories, directories: dict[str, int]
) -> Iterator[DirectoryFiles]:
    """Yield the files of all directories, and add each directory to `directories`, outer ones first."""
    pending = deque([""])
    while pending:
        folder = pending.popleft()
        subdirectories, names = _list_directory(folders.open(folder))
        for name in subdirectories:
            directories[joined(folder, name)] = 0
            pending.append(joined(folder, name))
        for batch in split_batches(names, FILES_PER_BATCH):
            yield DirectoryFiles(folder, batch)


def _list_directory(descriptor: int) -> tuple[list[str], list[str]]:
    subdirectories: list[str] = []
    names: list[str] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            (subdirectories if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    return subdirectories, names


class _FileRemover(TreeWorker):
    """Removes files through its own open directories. Not thread-safe."""

    def __init__(self, root: Path, remove: RemoveFiles) -> None:
        super().__init__(Directories(root))
        self._remove = remove

    def remove(self, files: DirectoryFiles) -> tuple[str, int]:
        self.done += _WORK_PER_FILE * len(files.names)
        return files.folder, self._remove(self.folders.open(files.folder), files)


def remove_tree(root: Path) -> None:
    """Remove a tree completely, as far as permissions allow."""
    with suppress(OSError):
        remove_files(root, _remove_all, lambda folder: True)
    shutil.rmtree(root, ignore_errors=True)  # the root, and files that were created meanwhile


def _remove_all(folder: int, files: DirectoryFiles) -> int:
    for name in files.names:
        try:  # noqa: SIM105 - suppress() is too slow for each file of a tree
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
    return 0
