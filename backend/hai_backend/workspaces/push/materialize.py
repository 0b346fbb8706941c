"""Builds new directories outside the tree, and publishes them by one rename of the outermost new directory.

Each small file is written to its final path there. So a first push needs one rename for a directory instead of one for
each file. Files of an interrupted push are moved to `incoming`, named by digest, for the next attempt.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import Any, NamedTuple

from hai_backend.domain.workspace import Entry, folder_of, folders_above
from hai_backend.workspaces.contents import (
    CREATE,
    closing_descriptor,
    hash_file,
    open_for_reading,
    rename_no_replace,
    write_all,
)
from hai_backend.workspaces.files import WorkspaceFiles, now_ns
from hai_backend.workspaces.storage.directories import (
    OPEN_DIRECTORY,
    Directories,
    chown_to,
    set_aside,
)
from hai_backend.workspaces.storage.workers import (
    FILE_BYTES,
    FILE_SECONDS,
    FILES_PER_BATCH,
    WorkerPool,
    split_batches,
)

_INSERT_LAID = "INSERT OR REPLACE INTO laid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EXISTS = "SELECT 1 FROM entries WHERE folder = ? AND name = ? AND gone = 0"
_UNNEEDED = """SELECT l.folder, l.name FROM laid l LEFT JOIN staged s USING (folder, name)
    WHERE l.push = ? AND s.laid IS NOT l.push"""
_OCCUPIED = (FileExistsError, IsADirectoryError, NotADirectoryError)


class Content(NamedTuple):
    """A content that arrived, its paths in new directories, and whether other paths need the content as well."""

    digest: bytes
    data: memoryview
    targets: Sequence[Entry]
    also_elsewhere: bool


class Stored(NamedTuple):
    """The result of storing contents: rows for the table `laid`, and names of new files in `incoming`."""

    rows: list[tuple[Any, ...]]
    incoming: list[str]


class Materializer:
    """Stores contents as files in new directories, or else in `incoming`. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, push: int) -> None:
        self._files = files
        self._push = push
        self._root = files.laid / str(push)
        self._folders: Directories | None = None
        self._last_folder = ("", -1)
        self.done = 0

    @property
    def is_used(self) -> bool:
        """Whether any new directory was created."""
        return self._folders is not None

    def close(self) -> None:
        if self._folders is not None:
            self._folders.close()

    def store(self, contents: Sequence[Content]) -> Stored:
        """Store all contents. Raise OSError."""
        stored = Stored([], [])
        for digest, data, targets, also_elsewhere in contents:
            for entry in targets:
                row = self._write(entry, data)
                if row is None:
                    also_elsewhere = True
                else:
                    stored.rows.append(row)
            if also_elsewhere:
                self._files.incoming.put(digest.hex(), data)
                stored.incoming.append(digest.hex())
            self.done += 1 + len(data) // FILE_BYTES
        return stored

    def _write(self, entry: Entry, content: memoryview) -> tuple[Any, ...] | None:
        """Write a file to its final path. Return its row for `laid`; None if another entry has that path."""
        folder, _, name = entry.path.rpartition("/")
        try:
            folder_fd = self._folder(folder)
            file = os.open(name, CREATE | os.O_TRUNC, 0o644, dir_fd=folder_fd)
        except _OCCUPIED:
            return None
        try:
            write_all(file, content)
            status = self._set_attributes(file, entry)
        except BaseException:
            os.unlink(name, dir_fd=folder_fd)
            raise
        finally:
            os.close(file)
        stat = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns, now_ns())
        return (self._push, folder, name, entry.digest, entry.executable, *stat)

    def _folder(self, folder: str) -> int:
        if self._last_folder[0] != folder:
            self._last_folder = (folder, self._open_or_make(folder))
        return self._last_folder[1]

    def _open_or_make(self, folder: str) -> int:
        if self._folders is None:
            self._root.mkdir(exist_ok=True)
            self._folders = Directories(self._root, owner=self._files.owner)
        try:
            return self._folders.open(folder)
        except FileNotFoundError:
            return self._folders.open_or_create(folder)

    def _set_attributes(self, file: int, entry: Entry) -> os.stat_result:
        if entry.executable:
            os.fchmod(file, 0o755)
        chown_to(file, self._files.owner)
        os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
        return os.fstat(file)


class NewDirectories:
    """The new directories of one push. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, push: int) -> None:
        self._files = files
        self._push = push
        self._root = files.laid / str(push)
        self._outermost: dict[str, str] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._pool = WorkerPool(
            partial(Materializer, files, push), FILE_SECONDS, files.storage_speed
        )

    @property
    def is_used(self) -> bool:
        """Tells whether anything was stored here."""
        return any(materializer.is_used for materializer in self._pool.workers)

    def find_outermost_new(self, folder: str) -> str:
        """Return the outermost directory of a path that the newest revision does not have; empty if it has all."""
        outermost = self._outermost.get(folder)
        if outermost is None:
            outermost = self._outermost[folder] = self._find_outermost(folder)
        return outermost

    def _find_outermost(self, folder: str) -> str:
        for path in (*folders_above(folder), folder) if folder else ():
            if not self._files.index.fetch_rows(
                _EXISTS, (folder_of(path), path.rpartition("/")[2])
            ):
                return path
        return ""

    def store(self, contents: Iterable[Content]) -> Iterator[str]:
        """Store contents with different paths. Yield the names of new files in `incoming`. Raise OSError."""
        for stored in self._pool.map_ordered(
            Materializer.store, split_batches(contents, FILES_PER_BATCH)
        ):
            self._rows += stored.rows
            yield from stored.incoming

    def record(self) -> None:
        """Record in the index the files that were stored since the last call."""
        with self._files.index.transaction() as db:
            db.executemany(_INSERT_LAID, self._rows)
        self._rows.clear()

    def prepare_commit(self) -> None:
        """Prepare the commit: delete files that are no longer needed, and mark the outermost directories as built."""
        if not self.is_used:
            return
        for folder, name in self._files.index.fetch_rows(_UNNEEDED, (self._push,)):
            os.unlink(f"{self._root}/{folder}/{name}")
            _remove_empty(f"{self._root}/{folder}", str(self._root))
        tops = {top.rpartition("/")[::2] for top in self._outermost.values() if top}
        update = f"UPDATE staged SET laid = {self._push} WHERE folder = ? AND name = ? AND kind = 2"
        with self._files.index.transaction() as db:
            db.executemany(update, tops)

    def close(self) -> None:
        """Move uncommitted files to `incoming`, unless a pending commit still needs the directories."""
        self._pool.close()
        if not self.is_used:
            return
        if self._files.index.fetch_rows("SELECT 1 FROM pending LIMIT 1"):
            return
        salvage(self._files, self._root)
        with self._files.index.transaction() as db:
            db.execute("DELETE FROM laid WHERE push = ?", (self._push,))


def salvage(files: WorkspaceFiles, root: Path) -> None:
    """Move uncommitted files to `incoming`. They are named by their actual digest, because some may be incomplete."""
    for _, _, names, folder in os.fwalk(root):
        for name in names:
            with closing_descriptor(open_for_reading(folder, name)) as file:
                digest = hash_file(file).hex()
                os.utime(file)  # so that garbage collection keeps the file for a day
                os.fchmod(file, 0o644)
            os.rename(name, digest, src_dir_fd=folder, dst_dir_fd=files.incoming.folder)
    shutil.rmtree(root, ignore_errors=True)


def recover(files: WorkspaceFiles) -> None:
    """Move the uncommitted files of another process to `incoming`. Call this after all commits are applied."""
    for name in os.listdir(files.laid):
        salvage(files, files.laid / name)


def publish(files: WorkspaceFiles, folder: int, name: str, source: str, path: str) -> bool:
    """Move a new directory into an open directory of the tree. Return False if it does not exist (any more)."""
    try:
        root = os.open(files.laid / source, OPEN_DIRECTORY)
    except FileNotFoundError:
        return False
    with closing_descriptor(root):
        return _move(root, path, folder, name)


def _move(source_folder: int, source: str, target_folder: int, name: str) -> bool:
    """Move an entry without replacing another one: merge directories, and rename any other existing entry."""
    try:
        if rename_no_replace(source, source_folder, name, target_folder):
            return True
        mode = os.stat(source, dir_fd=source_folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    # If the target does not exist, the file system does not support RENAME_NOREPLACE.
    with suppress(FileNotFoundError):
        target_mode = os.stat(name, dir_fd=target_folder, follow_symlinks=False).st_mode
        if S_ISDIR(mode) and S_ISDIR(target_mode):
            return _merge(source_folder, source, target_folder, name)
        set_aside(name, target_folder)
    os.rename(source, name, src_dir_fd=source_folder, dst_dir_fd=target_folder)
    return True


def _merge(source_folder: int, source: str, target_folder: int, name: str) -> bool:
    source_fd = os.open(source, OPEN_DIRECTORY, dir_fd=source_folder)
    with (
        closing_descriptor(source_fd),
        closing_descriptor(os.open(name, OPEN_DIRECTORY, dir_fd=target_folder)) as target,
    ):
        for inner in os.listdir(source_fd):
            _move(source_fd, inner, target, inner)
    os.rmdir(source, dir_fd=source_folder)
    return True


def _remove_empty(folder: str, root: str) -> None:
    while folder != root and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)
