"""Creates the directories of tasks that run on a pinned revision.

A directory contains exactly that revision, and all runs of the task use it. It is created under another name first, so
a task never starts in an incomplete tree, and every file is compared with its digest. When the task has ended, files
that are still as in the revision are removed, and files that its program wrote are kept.
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
from hai_backend.workspaces.contents import (
    closing_descriptor,
    copy_and_verify,
    hash_file,
    open_for_reading,
)
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.push.removal import DirectoryFiles, remove_files, remove_tree
from hai_backend.workspaces.read import content_lost_error
from hai_backend.workspaces.storage.directories import Directories, chown_to
from hai_backend.workspaces.storage.file_stat import has_mtime
from hai_backend.workspaces.storage.workers import (
    FILE_BYTES,
    FILE_SECONDS,
    FILES_PER_BATCH,
    StorageSpeed,
    WorkerPool,
    split_batches,
)

_WRITE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PAGE_ENTRIES = 500
_REMOVED_SUFFIX = ".gone"  # of a directory that is being removed
_REMEDY = "push it again as it was, or submit with the current revision"


def create(files: WorkspaceFiles, task: int, revision: int, owner: int) -> None:
    """Create the directory of a task, unless it exists. Raise Conflict CONTENT_LOST."""
    path, unfinished = files.tasks / str(task), files.tasks / f".{task}.new"
    if path.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        size = _fill_checkout(files, unfinished, revision, owner)
    except BaseException:  # for example, an incomplete tree on a full disk would keep the disk full
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    with Directories(unfinished) as folders:
        chown_to(folders.root, owner)
        os.utime(folders.root)
        created_ns = os.fstat(folders.root).st_ctime_ns  # by the clock of the file system
    with files.index.transaction() as db:
        row = (task, revision, size, created_ns)
        db.execute("INSERT OR REPLACE INTO checkouts VALUES (?, ?, ?, ?)", row)
    os.rename(unfinished, path)


def _fill_checkout(files: WorkspaceFiles, checkout: Path, revision: int, owner: int) -> int:
    """Create the files of a revision below `checkout`, and return their bytes."""
    entries = chain.from_iterable(files.index.iterate_tree(revision))
    copier = partial(_Copier, files, checkout, owner)
    with closing(WorkerPool(copier, FILE_SECONDS, files.storage_speed)) as pool:
        return sum(pool.map_ordered(_Copier.put, split_batches(entries, FILES_PER_BATCH)))


class _Copier:
    """Creates the files of a task's directory. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, checkout: Path, owner: int) -> None:
        self._files = files
        self._owner = owner
        self._checkout = Directories(checkout, owner=owner)
        self._tree = files.open_tree()
        self.done = 0

    def close(self) -> None:
        self._checkout.close()
        self._tree.close()

    def put(self, entries: list[Entry]) -> int:
        """Create these entries and return their bytes. Raise Conflict CONTENT_LOST."""
        self._files.reserve.require()
        for entry in entries:
            if entry.kind is EntryKind.DIRECTORY:
                self._checkout.open_or_create(entry.path)
            else:
                self._create(entry, self._checkout.open_or_create(folder_of(entry.path)))
        size = sum(entry.size for entry in entries)
        self.done += len(entries) + size // FILE_BYTES
        return size

    def _create(self, entry: Entry, folder: int) -> None:
        name = entry.path.rpartition("/")[2]
        if entry.kind is EntryKind.SYMLINK:
            os.symlink(entry.target, name, dir_fd=folder)
            return
        source = self._files.find_content(entry.digest, self._tree)
        if source is None:
            raise content_lost_error(entry.path, _REMEDY)
        mode = 0o755 if entry.executable else 0o644
        with (
            closing_descriptor(source),
            closing_descriptor(os.open(name, _WRITE, mode, dir_fd=folder)) as checkout,
        ):
            if not copy_and_verify(source, checkout, entry.digest):
                raise content_lost_error(entry.path, _REMEDY)
            chown_to(checkout, self._owner)
            os.utime(checkout, ns=(entry.mtime_ns, entry.mtime_ns))


def list_tasks_with_directory(files: WorkspaceFiles) -> list[int]:
    """Return the tasks that have a directory."""
    return [row[0] for row in files.index.fetch_rows("SELECT task FROM checkouts ORDER BY task")]


def list_written_files(files: WorkspaceFiles, task: int) -> Generator[list[Entry]]:
    """Yield in pages the entries that the program of a task wrote. Raise NotFound."""
    page: list[Entry] = []
    with _open_checkout(files, task) as folders:
        for entry in _changed_entries(files, task, folders):
            page.append(entry)
            if len(page) == _PAGE_ENTRIES:
                yield page
                page = []
    if page:
        yield page


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The files in the directory of a task, as a FileSource."""

    files: WorkspaceFiles
    task: int

    @property
    def storage_speed(self) -> StorageSpeed:
        return self.files.storage_speed

    def open_tree(self) -> Directories:
        """Open the directory. Raise NotFound."""
        return _open_checkout(self.files, self.task)

    def open(self, folders: Directories, path: str, max_bytes: int | None = None) -> int | None:
        """Open a file. Raise NotFound."""
        try:
            if path_problem(path):
                raise FileNotFoundError(path)
            file = open_for_reading(folders.open(folder_of(path)), path.rpartition("/")[2])
        except OSError as error:
            raise NotFound(f"task {self.task} has no file {path[:200]!r}") from error
        status = os.fstat(file)
        if S_ISREG(status.st_mode) and (max_bytes is None or status.st_size <= max_bytes):
            return file
        os.close(file)
        if S_ISREG(status.st_mode):
            return None
        raise NotFound(f"{path[:200]!r} of task {self.task} is not a file")


def remove_unchanged(files: WorkspaceFiles, task: int) -> None:
    """Remove everything from the directory of an ended task, except files that its program wrote."""
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


def _open_checkout(files: WorkspaceFiles, task: int) -> Directories:
    try:
        return Directories(files.tasks / str(task))
    except FileNotFoundError:
        raise directory_not_found_error(task) from None


def directory_not_found_error(task: int) -> NotFound:
    return NotFound(
        f"task {task} has no directory: it did not run on a revision of this workspace, or wrote nothing"
    )


def _read_checked_out(
    files: WorkspaceFiles, task: int, folder: str
) -> tuple[dict[str, Entry], int]:
    """Return the entries of a directory by name as they were checked out, and the time of the checkout."""
    rows = files.index.fetch_rows("SELECT revision, made_ns FROM checkouts WHERE task = ?", (task,))
    if not rows:
        return {}, 0
    revision, made_ns = rows[0]
    entries = files.index.list_directory(folder, revision)
    return {entry.path.rpartition("/")[2]: entry for entry in entries}, made_ns


def _changed_entries(files: WorkspaceFiles, task: int, folders: Directories) -> Iterator[Entry]:
    """Yield the entries of a directory that differ from the checked-out ones."""
    pending = [""]
    while pending:
        folder = pending.pop()
        recorded, made_ns = _read_checked_out(files, task, folder)
        descriptor = folders.open(folder)
        for name in sorted(os.listdir(descriptor)):
            entry = _read_entry(descriptor, folder, name, recorded.get(name), made_ns)
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


def _read_entry(
    folder_fd: int, folder: str, name: str, recorded: Entry | None, made_ns: int
) -> Entry | None:
    """Read an entry of a directory. Return None if it is neither file, directory nor link."""
    path = joined(folder, name)
    status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    if S_ISDIR(status.st_mode):
        return Entry(path, EntryKind.DIRECTORY)
    if S_ISLNK(status.st_mode):
        return Entry(path, EntryKind.SYMLINK, target=os.readlink(name, dir_fd=folder_fd))
    if not S_ISREG(status.st_mode):
        return None
    if recorded is not None and _is_unchanged(status, recorded, made_ns):
        return recorded
    with closing_descriptor(open_for_reading(folder_fd, name)) as file:
        digest = hash_file(file)
    executable = bool(status.st_mode & 0o100)
    mtime_ns = max(status.st_mtime_ns, 0)
    return Entry(path, EntryKind.FILE, executable, status.st_size, mtime_ns, digest)


def _is_unchanged(now: os.stat_result, recorded: Entry, made_ns: int) -> bool:
    """Return whether a file is unchanged since the checkout. A write also changes ctime, which programs cannot set."""
    return (
        recorded.kind is EntryKind.FILE
        and now.st_size == recorded.size
        and has_mtime(recorded.mtime_ns, now.st_mtime_ns)
        and now.st_ctime_ns <= made_ns
        and bool(now.st_mode & 0o100) == recorded.executable
    )


class _Baseline:
    """The state in which a task's directory was checked out. It removes the files that are still unchanged."""

    def __init__(self, files: WorkspaceFiles, task: int) -> None:
        self._files = files
        self._task = task
        self._last: tuple[str, dict[str, Entry], int] = "", *_read_checked_out(files, task, "")

    def remove(self) -> int:
        """Remove unchanged files. Return the remaining bytes, at least 1 when anything remains. Raise OSError."""
        return remove_files(
            self._files.tasks / str(self._task), self._remove_unchanged, self._is_checked_out
        )

    def _entries_in(self, folder: str) -> tuple[dict[str, Entry], int]:
        """Return the entries of a directory. The last one is cached, because files come directory by directory."""
        last = self._last
        if last[0] != folder:
            last = self._last = folder, *_read_checked_out(self._files, self._task, folder)
        return last[1:]

    def _is_checked_out(self, path: str) -> bool:
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
    """Return whether a link or file is as it was checked out. Read the file if necessary."""
    if S_ISLNK(now.st_mode):
        is_link = entry.kind is EntryKind.SYMLINK
        return is_link and os.readlink(name, dir_fd=folder) == entry.target
    if entry.kind is not EntryKind.FILE or not S_ISREG(now.st_mode):
        return False
    if _is_unchanged(now, entry, made_ns):
        return True
    with closing_descriptor(open_for_reading(folder, name)) as file:
        return hash_file(file) == entry.digest


def list_directories(files: WorkspaceFiles, *, before: int, limit: int) -> list[TaskTree]:
    """Return the directories of tasks with numbers below `before`, newest first."""
    query = """SELECT task, revision, size_bytes, made_ns FROM checkouts
        WHERE task < ? ORDER BY task DESC LIMIT ?"""
    rows = files.index.fetch_rows(query, (before, limit))
    return [
        TaskTree(task, revision, size, checkout / 1e9) for task, revision, size, checkout in rows
    ]


def hide(files: WorkspaceFiles, task: int) -> Path:
    """Hide the directory of a task under another name. Return the new path, which the caller must remove.

    Raise NotFound.
    """
    path, hidden = files.tasks / str(task), files.tasks / f".{task}{_REMOVED_SUFFIX}"
    remove_tree(hidden)
    try:
        os.rename(path, hidden)
    except FileNotFoundError:
        if not files.index.fetch_rows("SELECT 1 FROM checkouts WHERE task = ?", (task,)):
            raise directory_not_found_error(task) from None
        # Otherwise a server died after it had renamed the directory, and the row is deleted now.
    with files.index.transaction(durable=True) as db:
        db.execute("DELETE FROM checkouts WHERE task = ?", (task,))
    return hidden


def remove_hidden(files: WorkspaceFiles) -> None:
    """Remove hidden directories that a server left when it died."""
    for name in os.listdir(files.tasks):
        if name.startswith(".") and name.endswith(_REMOVED_SUFFIX):
            remove_tree(files.tasks / name)
