"""Directories of tasks that run on a pinned revision: each has exactly that revision and is kept over all runs of its
task.

A directory is created under another name first, so a task never starts in an incomplete tree; every file is compared
with its digest. When the task has ended, files that are still as in the revision are removed; what its program wrote is
kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG

from hai_backend.domain.errors import NotFound
from hai_backend.domain.workspace import (
    Entry,
    EntryKind,
    TaskTree,
    entry_problem,
    folder_of,
    joined,
    path_problem,
)
from hai_backend.workspaces.contents import copy_and_verify, digest_of, open_in, opened
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.push.removal import DirectoryFiles, remove_files, remove_tree
from hai_backend.workspaces.read import content_lost
from hai_backend.workspaces.storage.directories import Directories, chown_to
from hai_backend.workspaces.storage.file_stat import has_mtime
from hai_backend.workspaces.storage.workers import (
    FILE_BYTES,
    FILE_SECONDS,
    FILES_PER_BATCH,
    StorageSpeed,
    WorkerPool,
    batches,
)

_WRITE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PAGE_ENTRIES = 500
_REMOVED_SUFFIX = ".gone"  # of a directory that is being removed
_REMEDY = "push it again as it was, or submit with the current revision"


def create(files: WorkspaceFiles, task: int, revision: int, owner: int) -> None:
    """Creates the directory of a task, unless it exists. Raises Conflict CONTENT_LOST."""
    path, unfinished = files.tasks / str(task), files.tasks / f".{task}.new"
    if path.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        size = _fill(files, unfinished, revision, owner)
    except BaseException:  # for example, the disk is full: an incomplete tree would keep it full
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    with Directories(unfinished) as folders:
        chown_to(folders.root, owner)
        os.utime(folders.root)
        made_ns = os.fstat(folders.root).st_ctime_ns  # by the clock of the file system
    with files.index.transaction() as db:
        row = (task, revision, size, made_ns)
        db.execute("INSERT OR REPLACE INTO checkouts VALUES (?, ?, ?, ?)", row)
    os.rename(unfinished, path)


def _fill(files: WorkspaceFiles, checkout: Path, revision: int, owner: int) -> int:
    """Returns the bytes of the files."""
    entries = chain.from_iterable(files.index.tree(revision))
    copier = partial(_Copier, files, checkout, owner)
    with closing(WorkerPool(copier, FILE_SECONDS, files.storage_speed)) as pool:
        return sum(pool.map_ordered(_Copier.put, batches(entries, FILES_PER_BATCH)))


class _Copier:
    """Creates the files of a task's directory. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, checkout: Path, owner: int) -> None:
        self._files = files
        self._owner = owner
        self._made = Directories(checkout, owner=owner)
        self._tree = files.folders()
        self.done = 0

    def close(self) -> None:
        self._made.close()
        self._tree.close()

    def put(self, entries: list[Entry]) -> int:
        """Creates these entries and returns their bytes. Raises Conflict CONTENT_LOST."""
        self._files.reserve.require()
        for entry in entries:
            if entry.kind is EntryKind.DIRECTORY:
                self._made.make(entry.path)
            else:
                self._put(entry, self._made.make(folder_of(entry.path)))
        size = sum(entry.size for entry in entries)
        self.done += len(entries) + size // FILE_BYTES
        return size

    def _put(self, entry: Entry, folder: int) -> None:
        name = entry.path.rpartition("/")[2]
        if entry.kind is EntryKind.SYMLINK:
            os.symlink(entry.target, name, dir_fd=folder)
            return
        found = self._files.find(entry.digest, self._tree)
        if found is None:
            raise content_lost(entry.path, _REMEDY)
        mode = 0o755 if entry.executable else 0o644
        with opened(found), opened(os.open(name, _WRITE, mode, dir_fd=folder)) as checkout:
            if not copy_and_verify(found, checkout, entry.digest):
                raise content_lost(entry.path, _REMEDY)
            chown_to(checkout, self._owner)
            os.utime(checkout, ns=(entry.mtime_ns, entry.mtime_ns))


def tasks_with_directory(files: WorkspaceFiles) -> list[int]:
    """Returns the tasks that have a directory."""
    return [row[0] for row in files.index.rows("SELECT task FROM checkouts ORDER BY task")]


def written_files(files: WorkspaceFiles, task: int) -> Generator[list[Entry]]:
    """Yields in pages what the program of a task wrote. Raises NotFound."""
    page: list[Entry] = []
    with _directory(files, task) as folders:
        for entry in _changed_entries(files, task, folders):
            page.append(entry)
            if len(page) == _PAGE_ENTRIES:
                yield page
                page = []
    if page:
        yield page


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Files in the directory of a task."""

    files: WorkspaceFiles
    task: int

    @property
    def storage_speed(self) -> StorageSpeed:
        return self.files.storage_speed

    def folders(self) -> Directories:
        """Opens the directory. Raises NotFound."""
        return _directory(self.files, self.task)

    def open(self, folders: Directories, path: str, max_bytes: int | None = None) -> int | None:
        """Opens a file. Raises NotFound."""
        try:
            if path_problem(path):
                raise FileNotFoundError(path)
            file = open_in(folders.at(folder_of(path)), path.rpartition("/")[2])
        except OSError as error:
            raise NotFound(f"task {self.task} has no file {path[:200]!r}") from error
        now = os.fstat(file)
        if S_ISREG(now.st_mode) and (max_bytes is None or now.st_size <= max_bytes):
            return file
        os.close(file)
        if S_ISREG(now.st_mode):
            return None
        raise NotFound(f"{path[:200]!r} of task {self.task} is not a file")


def remove_unchanged(files: WorkspaceFiles, task: int) -> None:
    """Removes everything but what the program of an ended task wrote."""
    path = files.tasks / str(task)
    remaining_bytes = _Baseline(files, task).remove() if path.exists() else 0
    with files.index.transaction() as db:
        if remaining_bytes:
            db.execute(
                "UPDATE checkouts SET size_bytes = ? WHERE task = ?", (remaining_bytes, task)
            )
        else:
            db.execute("DELETE FROM checkouts WHERE task = ?", (task,))
    if not remaining_bytes:
        shutil.rmtree(path, ignore_errors=True)


def _directory(files: WorkspaceFiles, task: int) -> Directories:
    try:
        return Directories(files.tasks / str(task))
    except FileNotFoundError:
        raise directory_not_found(task) from None


def directory_not_found(task: int) -> NotFound:
    return NotFound(
        f"task {task} has no directory: it did not run on a revision of this workspace, or wrote nothing"
    )


def _checked_out(files: WorkspaceFiles, task: int, folder: str) -> tuple[dict[str, Entry], int]:
    """Returns the checked-out entries of a directory by name, and the time of the checkout."""
    rows = files.index.rows("SELECT revision, made_ns FROM checkouts WHERE task = ?", (task,))
    if not rows:
        return {}, 0
    revision, made_ns = rows[0]
    entries = files.index.folder(folder, revision)
    return {entry.path.rpartition("/")[2]: entry for entry in entries}, made_ns


def _changed_entries(files: WorkspaceFiles, task: int, folders: Directories) -> Iterator[Entry]:
    pending = [""]
    while pending:
        folder = pending.pop()
        recorded, made_ns = _checked_out(files, task, folder)
        descriptor = folders.at(folder)
        for name in sorted(os.listdir(descriptor)):
            entry = _entry(descriptor, folder, name, recorded.get(name), made_ns)
            if entry is None:
                continue
            if entry.kind is EntryKind.DIRECTORY:
                pending.append(entry.path)
            elif entry == recorded.get(name):
                continue
            if not _has_problem(entry):
                yield entry


def _has_problem(entry: Entry) -> bool:
    try:
        return bool(entry_problem(entry))
    except UnicodeEncodeError:  # a name that is not UTF-8
        return True


def _entry(
    folder_fd: int, folder: str, name: str, recorded: Entry | None, made_ns: int
) -> Entry | None:
    """Reads an entry of a directory; None if it is neither file, directory nor link."""
    path = joined(folder, name)
    now = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    if S_ISDIR(now.st_mode):
        return Entry(path, EntryKind.DIRECTORY)
    if S_ISLNK(now.st_mode):
        return Entry(path, EntryKind.SYMLINK, target=os.readlink(name, dir_fd=folder_fd))
    if not S_ISREG(now.st_mode):
        return None
    if recorded is not None and _is_unchanged(now, recorded, made_ns):
        return recorded
    with opened(open_in(folder_fd, name)) as file:
        digest = digest_of(file)
    executable = bool(now.st_mode & 0o100)
    return Entry(path, EntryKind.FILE, executable, now.st_size, max(now.st_mtime_ns, 0), digest)


def _is_unchanged(now: os.stat_result, recorded: Entry, made_ns: int) -> bool:
    """Tells whether a file is unchanged since the checkout. Writes change both times; programs cannot set ctime."""
    return (
        recorded.kind is EntryKind.FILE
        and now.st_size == recorded.size
        and has_mtime(recorded.mtime_ns, now.st_mtime_ns)
        and now.st_ctime_ns <= made_ns
        and bool(now.st_mode & 0o100) == recorded.executable
    )


class _Baseline:
    """The checked-out state of a task's directory; removes what is still unchanged."""

    def __init__(self, files: WorkspaceFiles, task: int) -> None:
        self._files = files
        self._task = task
        self._last: tuple[str, dict[str, Entry], int] = "", *_checked_out(files, task, "")

    def remove(self) -> int:
        """Returns the remaining bytes, at least 1 when anything remains. Raises OSError."""
        return remove_files(
            self._files.tasks / str(self._task), self._remove_unchanged, self._is_directory
        )

    def _entries_in(self, folder: str) -> tuple[dict[str, Entry], int]:
        """Caches the last directory, because files come directory by directory."""
        last = self._last
        if last[0] != folder:
            last = self._last = folder, *_checked_out(self._files, self._task, folder)
        return last[1:]

    def _is_directory(self, path: str) -> bool:
        return path.rpartition("/")[2] in self._entries_in(folder_of(path))[0]

    def _remove_unchanged(self, folder: int, directory: DirectoryFiles) -> int:
        recorded, made_ns = self._entries_in(directory.folder)
        remaining_bytes = 0
        for name in directory.names:
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            entry = recorded.get(name)
            if entry is not None and _is_as_checked_out(folder, name, now, entry, made_ns):
                os.unlink(name, dir_fd=folder)
            else:
                remaining_bytes += now.st_size + 1
        return remaining_bytes


def _is_as_checked_out(
    folder: int, name: str, now: os.stat_result, entry: Entry, made_ns: int
) -> bool:
    if S_ISLNK(now.st_mode):
        is_link = entry.kind is EntryKind.SYMLINK
        return is_link and os.readlink(name, dir_fd=folder) == entry.target
    if entry.kind is not EntryKind.FILE or not S_ISREG(now.st_mode):
        return False
    if _is_unchanged(now, entry, made_ns):
        return True
    with opened(open_in(folder, name)) as file:
        return digest_of(file) == entry.digest


def list_directories(files: WorkspaceFiles, *, before: int, limit: int) -> list[TaskTree]:
    """Returns the directories of tasks with numbers below `before`, newest first."""
    query = """SELECT task, revision, size_bytes, made_ns FROM checkouts
        WHERE task < ? ORDER BY task DESC LIMIT ?"""
    rows = files.index.rows(query, (before, limit))
    return [
        TaskTree(task, revision, size, checkout / 1e9) for task, revision, size, checkout in rows
    ]


def hide(files: WorkspaceFiles, task: int) -> Path:
    """Hides the directory of a task, and returns the hidden one for removal by the caller. Raises NotFound."""
    path, hidden = files.tasks / str(task), files.tasks / f".{task}{_REMOVED_SUFFIX}"
    remove_tree(hidden)
    try:
        os.rename(path, hidden)
    except FileNotFoundError:
        if not files.index.rows("SELECT 1 FROM checkouts WHERE task = ?", (task,)):
            raise directory_not_found(
                task
            ) from None  # otherwise a server died before it deleted the row
    with files.index.transaction(durable=True) as db:
        db.execute("DELETE FROM checkouts WHERE task = ?", (task,))
    return hidden


def remove_hidden(files: WorkspaceFiles) -> None:
    """Removes hidden directories that a server left when it died."""
    for name in os.listdir(files.tasks):
        if name.startswith(".") and name.endswith(_REMOVED_SUFFIX):
            remove_tree(files.tasks / name)
