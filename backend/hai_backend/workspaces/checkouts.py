"""The directory of a task that runs on a pinned revision: made of exactly that revision, kept over all its runs.

It is made under another name first, so a task never starts in half a tree; every file is compared with its digest.
When the task has ended, what is still as the revision has it goes; what its program wrote stays.
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
    entry_problem,
    folder_of,
    joined,
    path_problem,
)
from hai_backend.workspaces.contents import copy_whole, digest_of, open_in, opened
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.push.removal import Inside, clear
from hai_backend.workspaces.read import lost
from hai_backend.workspaces.storage.directories import Directories, give
from hai_backend.workspaces.storage.file_stat import bears
from hai_backend.workspaces.storage.workers import (
    FILE_BYTES,
    FILE_SECONDS,
    PART,
    Storage,
    Workers,
    parts,
)

_WRITE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PAGE = 500
_ANEW = "push it as it was, or submit anew what is there now"


def make(files: Files, task: int, revision: int, owner: int) -> None:
    """The directory of a task; one that is there already stays as it is. Raises Conflict CONTENT_LOST."""
    path, fresh = files.tasks / str(task), files.tasks / f".{task}.new"
    if path.exists():
        return
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        size = _fill(files, fresh, revision, owner)
    except BaseException:  # the disk is full, say: half a tree would keep it so
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    with Directories(fresh) as folders:
        give(folders.root, owner)
        os.utime(folders.root)
        made_ns = os.fstat(folders.root).st_ctime_ns  # by the clock of the file system
    with files.index.transaction() as db:
        row = (task, revision, size, made_ns)
        db.execute("INSERT OR REPLACE INTO checkouts VALUES (?, ?, ?, ?)", row)
    os.rename(fresh, path)


def _fill(files: Files, made: Path, revision: int, owner: int) -> int:
    """Answers the bytes of what it puts there."""
    entries = chain.from_iterable(files.index.tree(revision))
    copier = partial(_Copier, files, made, owner)
    with closing(Workers(copier, FILE_SECONDS, files.storage)) as hands:
        return sum(hands.each(_Copier.put, parts(entries, PART)))


class _Copier:
    """Makes files of a directory of a task. One thread at a time."""

    def __init__(self, files: Files, made: Path, owner: int) -> None:
        self._files = files
        self._owner = owner
        self._made = Directories(made, owner=owner)
        self._tree = files.folders()
        self.done = 0

    def close(self) -> None:
        self._made.close()
        self._tree.close()

    def put(self, entries: list[Entry]) -> int:
        """Answers their bytes. Raises Conflict CONTENT_LOST."""
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
            raise lost(entry.path, _ANEW)
        mode = 0o755 if entry.executable else 0o644
        with opened(found), opened(os.open(name, _WRITE, mode, dir_fd=folder)) as made:
            if not copy_whole(found, made, entry.digest):
                raise lost(entry.path, _ANEW)
            give(made, self._owner)
            os.utime(made, ns=(entry.mtime_ns, entry.mtime_ns))


def existing(files: Files) -> list[int]:
    """Tasks that have a directory."""
    return [row[0] for row in files.index.rows("SELECT task FROM checkouts ORDER BY task")]


def written(files: Files, task: int) -> Generator[list[Entry]]:
    """What the program of a task wrote, in pages. Raises NotFound."""
    page: list[Entry] = []
    with _directory(files, task) as folders:
        for entry in _differing(files, task, folders):
            page.append(entry)
            if len(page) == _PAGE:
                yield page
                page = []
    if page:
        yield page


@dataclass(frozen=True, slots=True)
class OfTask:
    """Files in the directory of a task."""

    files: Files
    task: int

    @property
    def storage(self) -> Storage:
        """What is known of it."""
        return self.files.storage

    def folders(self) -> Directories:
        """Its directory. Raises NotFound."""
        return _directory(self.files, self.task)

    def open(self, folders: Directories, path: str, most: int | None = None) -> int | None:
        """One of them. Raises NotFound."""
        try:
            if path_problem(path):
                raise FileNotFoundError(path)
            file = open_in(folders.at(folder_of(path)), path.rpartition("/")[2])
        except OSError as error:
            raise NotFound(f"task {self.task} has no file {path[:200]!r}") from error
        now = os.fstat(file)
        if S_ISREG(now.st_mode) and (most is None or now.st_size <= most):
            return file
        os.close(file)
        if S_ISREG(now.st_mode):
            return None
        raise NotFound(f"{path[:200]!r} of task {self.task} is no file")


def tidy(files: Files, task: int) -> None:
    """After the end of a task: keep what its program wrote, and nothing else."""
    path = files.tasks / str(task)
    left = _Given(files, task).clear() if path.exists() else 0
    with files.index.transaction() as db:
        if left:
            db.execute("UPDATE checkouts SET size_bytes = ? WHERE task = ?", (left, task))
        else:
            db.execute("DELETE FROM checkouts WHERE task = ?", (task,))
    if not left:
        shutil.rmtree(path, ignore_errors=True)


def _directory(files: Files, task: int) -> Directories:
    try:
        return Directories(files.tasks / str(task))
    except FileNotFoundError:
        raise no_directory(task) from None


def no_directory(task: int) -> NotFound:
    """Of a task that has none."""
    return NotFound(
        f"there is no directory of task {task}: it did not run on a revision of this workspace, or wrote nothing"
    )


def _known(files: Files, task: int, folder: str) -> tuple[dict[str, Entry], int]:
    """What the task was given in a directory, by name, and when it was."""
    rows = files.index.rows("SELECT revision, made_ns FROM checkouts WHERE task = ?", (task,))
    if not rows:
        return {}, 0
    revision, made_ns = rows[0]
    entries = files.index.folder(folder, revision)
    return {entry.path.rpartition("/")[2]: entry for entry in entries}, made_ns


def _differing(files: Files, task: int, folders: Directories) -> Iterator[Entry]:
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        known, made_ns = _known(files, task, folder)
        descriptor = folders.at(folder)
        for name in sorted(os.listdir(descriptor)):
            entry = _entry(descriptor, folder, name, known.get(name), made_ns)
            if entry is None:
                continue
            if entry.kind is EntryKind.DIRECTORY:
                waiting.append(entry.path)
            elif entry == known.get(name):
                continue
            if not _has_problem(entry):
                yield entry


def _has_problem(entry: Entry) -> bool:
    try:
        return bool(entry_problem(entry))
    except UnicodeEncodeError:  # bytes that are no text
        return True


def _entry(
    folder_fd: int, folder: str, name: str, known: Entry | None, made_ns: int
) -> Entry | None:
    """What is there; None for what is neither file, directory nor link."""
    path = joined(folder, name)
    now = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    if S_ISDIR(now.st_mode):
        return Entry(path, EntryKind.DIRECTORY)
    if S_ISLNK(now.st_mode):
        return Entry(path, EntryKind.SYMLINK, target=os.readlink(name, dir_fd=folder_fd))
    if not S_ISREG(now.st_mode):
        return None
    if known is not None and _is_untouched(now, known, made_ns):
        return known
    with opened(open_in(folder_fd, name)) as file:
        digest = digest_of(file)
    executable = bool(now.st_mode & 0o100)
    return Entry(path, EntryKind.FILE, executable, now.st_size, max(now.st_mtime_ns, 0), digest)


def _is_untouched(now: os.stat_result, known: Entry, made_ns: int) -> bool:
    """Any write shows in both times, and the last change is one that programs cannot set."""
    return (
        known.kind is EntryKind.FILE
        and now.st_size == known.size
        and bears(known.mtime_ns, now.st_mtime_ns)
        and now.st_ctime_ns <= made_ns
        and bool(now.st_mode & 0o100) == known.executable
    )


class _Given:
    """What a task was given; that goes as far as it still is so."""

    def __init__(self, files: Files, task: int) -> None:
        self._files = files
        self._task = task
        self._last: tuple[str, dict[str, Entry], int] = "", *_known(files, task, "")

    def clear(self) -> int:
        """Answers the bytes that stay, at least 1 when anything does. Raises OSError."""
        return clear(self._files.tasks / str(self._task), self._remove, self._is_directory)

    def _in(self, folder: str) -> tuple[dict[str, Entry], int]:
        """Neighbours are asked for one after the other, mostly."""
        last = self._last
        if last[0] != folder:
            last = self._last = folder, *_known(self._files, self._task, folder)
        return last[1:]

    def _is_directory(self, path: str) -> bool:
        return path.rpartition("/")[2] in self._in(folder_of(path))[0]

    def _remove(self, folder: int, inside: Inside) -> int:
        known, made_ns = self._in(inside.folder)
        left = 0
        for name in inside.names:
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            entry = known.get(name)
            if entry is not None and _is_given(folder, name, now, entry, made_ns):
                os.unlink(name, dir_fd=folder)
            else:
                left += now.st_size + 1
        return left


def _is_given(folder: int, name: str, now: os.stat_result, entry: Entry, made_ns: int) -> bool:
    if S_ISLNK(now.st_mode):
        same = entry.kind is EntryKind.SYMLINK
        return same and os.readlink(name, dir_fd=folder) == entry.target
    if entry.kind is not EntryKind.FILE or not S_ISREG(now.st_mode):
        return False
    if _is_untouched(now, entry, made_ns):
        return True
    with opened(open_in(folder, name)) as file:
        return digest_of(file) == entry.digest
