"""Protects files that programs wrote since the newest revision: no commit may replace them."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import EntryKind, joined, target_problem
from hai_backend.workspaces.files import WorkspaceFiles, has_content_at
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.file_stat import Stat
from hai_backend.workspaces.storage.workers import (
    NAME_SECONDS,
    NAMES_PER_BATCH,
    TreeWorker,
    WorkerPool,
    split_batches,
)


def require_unchanged(files: WorkspaceFiles) -> None:
    """Raise Conflict if programs changed entries that would be replaced. A scan must commit these first."""
    pool = WorkerPool(partial(_ChangeChecker, files), NAME_SECONDS, files.storage_speed)
    with closing(pool), files.open_tree() as folders:
        _check_rows(files, pool, "(s.laid IS NULL OR s.kind = 2)")
        new_directories = files.index.fetch_rows(
            "SELECT folder, name FROM staged WHERE kind = 2 AND laid NOT NULL"
        )
        if any(_is_folder(files, folders, joined(*row)) for row in new_directories):
            _check_rows(files, pool, "s.laid NOT NULL")


def _check_rows(files: WorkspaceFiles, pool: WorkerPool[_ChangeChecker], condition: str) -> None:
    """Compare staged changes that meet a condition with the tree. Raise Conflict."""
    query = f"""SELECT s.folder, s.name, s.kind, e.kind, e.digest, e.target,
          t.size, t.mtime_ns, t.ino, t.ctime_ns, t.seen_ns
        FROM staged s LEFT JOIN entries e ON e.folder = s.folder AND e.name = s.name AND e.gone = 0
        LEFT JOIN stats t ON t.folder = s.folder AND t.name = s.name
        WHERE (e.kind IN (1, 3) OR e.kind IS NULL) AND {condition} AND (s.folder, s.name) > (?, ?)
        ORDER BY s.folder, s.name LIMIT 2000"""
    after = ("", "")
    while rows := files.index.fetch_rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        for _ in pool.map_ordered(_ChangeChecker.require, split_batches(rows, NAMES_PER_BATCH)):
            pass


class _ChangeChecker(TreeWorker):
    """Compares the tree with rows of the index. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles) -> None:
        super().__init__(files.open_tree())
        self._files = files

    def require(self, rows: list[Any]) -> None:
        """Raise Conflict if an entry differs from its row."""
        self.done += len(rows)
        missing_folder = None
        for folder, name, kind, *recorded in rows:
            if folder == missing_folder:
                continue
            if not _is_folder(self._files, self.folders, folder):
                missing_folder = folder
            elif not _is_unchanged(self.folders.open(folder), name, kind, recorded):
                raise _changed_by_program_error(joined(folder, name))


def _is_folder(files: WorkspaceFiles, folders: Directories, folder: str) -> bool:
    """Return whether a directory exists. Raise Conflict if a program replaced it.

    Missing directories are created later, and other entries with that name are renamed.
    """
    try:
        folders.open(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        recorded = files.index.get_entry(folder, files.index.newest_revision().number)
        if recorded is not None and recorded.kind is EntryKind.DIRECTORY:
            raise _changed_by_program_error(folder) from error
        return False
    return True


def _is_unoccupied(folder: int, name: str, kind: int) -> bool:
    """Return whether a path has no entry that a scan would commit. Other entries are renamed later."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if S_ISLNK(mode):
            return bool(target_problem(name, os.readlink(name, dir_fd=folder)))
    except FileNotFoundError:
        return True
    if S_ISDIR(mode):
        return kind == EntryKind.DIRECTORY
    return not S_ISREG(mode)


def _is_unchanged(folder: int, name: str, kind: int, recorded: list[Any]) -> bool:
    """Return whether a path is as in the newest revision.

    `recorded` has kind, digest and target of its entry, and the stat of the file; all None if there is no entry.
    """
    kind_before, digest, target, *stat_row = recorded
    if kind_before is None:
        return _is_unoccupied(folder, name, kind)
    if kind_before == EntryKind.SYMLINK:
        return _is_link(folder, name, target)
    return _is_unchanged_file(folder, name, digest, stat_row)


def _is_link(folder: int, name: str, target: str) -> bool:
    try:
        return os.readlink(name, dir_fd=folder) == target
    except OSError:
        return False


def _is_unchanged_file(folder: int, name: str, digest: bytes, stat_row: list[Any]) -> bool:
    recorded = Stat(*stat_row) if stat_row[0] is not None else None
    try:
        return has_content_at(folder, name, recorded, digest)
    except OSError:
        return False


def _changed_by_program_error(path: str) -> Conflict:
    return Conflict(
        f"a program on the cluster changed {path} since the newest revision; read the tree again",
        reason="REVISION_CHANGED",
    )
