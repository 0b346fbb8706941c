"""Builds new directories out of sight, each small file at its path; one rename of the outermost new directory publishes
them.

So a first push costs one rename for a directory, not one for a file. What an interrupted push has built goes to
`incoming`, named by digest, for the next attempt.
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
    digest_of,
    open_in,
    opened,
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
    batches,
)

_INSERT_LAID = "INSERT OR REPLACE INTO laid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EXISTS = "SELECT 1 FROM entries WHERE folder = ? AND name = ? AND gone = 0"
_UNNEEDED = """SELECT l.folder, l.name FROM laid l LEFT JOIN staged s USING (folder, name)
    WHERE l.push = ? AND s.laid IS NOT l.push"""
_OCCUPIED = (FileExistsError, IsADirectoryError, NotADirectoryError)


class Content(NamedTuple):
    """A content that arrived, its files in new directories, and whether it is also needed elsewhere."""

    digest: bytes
    data: memoryview
    targets: Sequence[Entry]
    also_elsewhere: bool


class Stored(NamedTuple):
    """The result of storing contents: rows of `laid`, and names of those that are in `incoming`."""

    rows: list[tuple[Any, ...]]
    incoming: list[str]


class Materializer:
    """Stores contents: as files in new directories, otherwise in `incoming`. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, push: int) -> None:
        self._files = files
        self._push = push
        self._root = files.laid / str(push)
        self._folders: Directories | None = None
        self._last_folder = ("", -1)
        self.done = 0

    @property
    def is_used(self) -> bool:
        """Tells whether it has created the root of the new directories."""
        return self._folders is not None

    def close(self) -> None:
        if self._folders is not None:
            self._folders.close()

    def store(self, contents: Sequence[Content]) -> Stored:
        """Stores all contents. Raises OSError."""
        stored = Stored([], [])
        for digest, data, targets, also_elsewhere in contents:
            for entry in targets:
                row = self._put(entry, data)
                if row is None:
                    also_elsewhere = True
                else:
                    stored.rows.append(row)
            if also_elsewhere:
                self._files.incoming.put(digest.hex(), data)
                stored.incoming.append(digest.hex())
            self.done += 1 + len(data) // FILE_BYTES
        return stored

    def _put(self, entry: Entry, content: memoryview) -> tuple[Any, ...] | None:
        """Writes a file to its final path. Returns its row, or None if something else has that path."""
        folder, _, name = entry.path.rpartition("/")
        try:
            folder_fd = self._folder(folder)
            file = os.open(name, CREATE | os.O_TRUNC, 0o644, dir_fd=folder_fd)
        except _OCCUPIED:
            return None
        try:
            write_all(file, content)
            found = self._finish(file, entry)
        except BaseException:
            os.unlink(name, dir_fd=folder_fd)
            raise
        finally:
            os.close(file)
        stat = (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns, now_ns())
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
            return self._folders.at(folder)
        except FileNotFoundError:
            return self._folders.make(folder)

    def _finish(self, file: int, entry: Entry) -> os.stat_result:
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

    def outermost_new(self, folder: str) -> str:
        """Returns the outermost directory on this path that the newest revision lacks; empty if it has all of them."""
        found = self._outermost.get(folder)
        if found is None:
            found = self._outermost[folder] = self._find_outermost(folder)
        return found

    def _find_outermost(self, folder: str) -> str:
        for path in (*folders_above(folder), folder) if folder else ():
            if not self._files.index.rows(_EXISTS, (folder_of(path), path.rpartition("/")[2])):
                return path
        return ""

    def store(self, contents: Iterable[Content]) -> Iterator[str]:
        """Stores contents, no two at the same path. Yields the names of those in `incoming`. Raises OSError."""
        for stored in self._pool.map_ordered(
            Materializer.store, batches(contents, FILES_PER_BATCH)
        ):
            self._rows += stored.rows
            yield from stored.incoming

    def record(self) -> None:
        """Records in the index what was stored since the last call."""
        with self._files.index.transaction() as db:
            db.executemany(_INSERT_LAID, self._rows)
        self._rows.clear()

    def prepare_commit(self) -> None:
        """Deletes files that are no longer needed, and marks the outermost directories as built, before the commit."""
        if not self.is_used:
            return
        for folder, name in self._files.index.rows(_UNNEEDED, (self._push,)):
            os.unlink(f"{self._root}/{folder}/{name}")
            _remove_empty(f"{self._root}/{folder}", str(self._root))
        tops = {top.rpartition("/")[::2] for top in self._outermost.values() if top}
        update = f"UPDATE staged SET laid = {self._push} WHERE folder = ? AND name = ? AND kind = 2"
        with self._files.index.transaction() as db:
            db.executemany(update, tops)

    def close(self) -> None:
        """Salvages what was not committed, unless a pending commit still needs the directories."""
        self._pool.close()
        if not self.is_used:
            return
        if self._files.index.rows("SELECT 1 FROM pending LIMIT 1"):
            return
        salvage(self._files, self._root)
        with self._files.index.transaction() as db:
            db.execute("DELETE FROM laid WHERE push = ?", (self._push,))


def salvage(files: WorkspaceFiles, root: Path) -> None:
    """Moves uncommitted files to `incoming`, named by their actual digest: some may be incomplete."""
    for _, _, names, folder in os.fwalk(root):
        for name in names:
            with opened(open_in(folder, name)) as file:
                digest = digest_of(file).hex()
                os.utime(file)  # its retention starts now
                os.fchmod(file, 0o644)
            os.rename(name, digest, src_dir_fd=folder, dst_dir_fd=files.incoming.folder)
    shutil.rmtree(root, ignore_errors=True)


def recover(files: WorkspaceFiles) -> None:
    """Salvages what another process left. Call it after all commits are applied."""
    for name in os.listdir(files.laid):
        salvage(files, files.laid / name)


def publish(files: WorkspaceFiles, folder: int, name: str, source: str, path: str) -> bool:
    """Moves a built directory into an open directory. Returns False if it is not there (any more)."""
    try:
        root = os.open(files.laid / source, OPEN_DIRECTORY)
    except FileNotFoundError:
        return False
    with opened(root):
        return _move(root, path, folder, name)


def _move(above: int, source: str, below: int, name: str) -> bool:
    """Moves without replacing anything: directories are merged, and anything else that exists is set aside."""
    try:
        if rename_no_replace(source, above, name, below):
            return True
        mode = os.stat(source, dir_fd=above, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):  # then the file system does not support RENAME_NOREPLACE
        if S_ISDIR(mode) and S_ISDIR(os.stat(name, dir_fd=below, follow_symlinks=False).st_mode):
            return _join(above, source, below, name)
        set_aside(name, below)
    os.rename(source, name, src_dir_fd=above, dst_dir_fd=below)
    return True


def _join(above: int, source: str, below: int, name: str) -> bool:
    source_fd = os.open(source, OPEN_DIRECTORY, dir_fd=above)
    with opened(source_fd), opened(os.open(name, OPEN_DIRECTORY, dir_fd=below)) as target:
        for inner in os.listdir(source_fd):
            _move(source_fd, inner, target, inner)
    os.rmdir(source, dir_fd=above)
    return True


def _remove_empty(folder: str, root: str) -> None:
    while folder != root and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)
