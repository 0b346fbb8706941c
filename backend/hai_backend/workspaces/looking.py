"""What programs wrote into the tree, found by a walk over it and made a revision.

Only what a stat does not settle is read. What changes while it is read, or cannot be read, is left as the index has
it. What is no file, directory or link that stays inside, or has a name that is no path here, is passed over and told.
What is private to each side is not there for us: a revision that has it is followed by one that has not, and the files
stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from hai_backend.domain.workspace import (
    OWN,
    Entry,
    EntryKind,
    PassedOver,
    Revision,
    entry_problem,
    joined,
    path_problem,
    target_problem,
)
from hai_backend.workspaces import applying, staging
from hai_backend.workspaces.contents import digest_of, open_in, opened
from hai_backend.workspaces.files import Files, now_ns
from hai_backend.workspaces.folders import Folders
from hai_backend.workspaces.index import FIELDS, entry_of
from hai_backend.workspaces.staging import Author
from hai_backend.workspaces.stats import GRANULE_NS, stat_of

_KNOWN = """SELECT e.name, kind, executable, e.size, e.mtime_ns, digest, target,
    s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns
    FROM entries e LEFT JOIN stats s ON s.folder = e.folder AND s.name = e.name
    WHERE e.folder = ? AND gone = 0"""
_SPECIAL, _UNREADABLE = "is a special file (socket, pipe or device)", "cannot be read"
_BELOW = f"""SELECT folder, name, {FIELDS} FROM entries
    WHERE gone = 0 AND (folder = :path OR (folder > :path || '/' AND folder < :path || '0'))"""


def look(files: Files, author: Author, passed_over: PassedOver | None = None) -> Revision:
    """The newest revision, after what is on storage now has become part of it; `passed_over` takes what cannot."""
    applying.apply(files)
    walk = _Walk(files, passed_over or PassedOver())
    with files.folders() as folders:
        staging.stage(files.index, walk.changes(folders))
    changed = staging.settle(files.index)
    newest = staging.commit(files.index, author, found=True) if changed else files.index.newest()
    walk.keep_stats()  # not before: a stat vouches for the digest that the newest revision has
    return newest


class _Walk:
    def __init__(self, files: Files, passed_over: PassedOver) -> None:
        self._files = files
        self._passed_over = passed_over
        self._stats: list[tuple[Any, ...]] = []

    def changes(self, folders: Folders) -> Iterator[list[Entry]]:
        """Folder by folder, what is not as the index has it."""
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            changed, inner = self._folder(folders, folder)
            waiting += inner
            if changed:
                yield changed

    def keep_stats(self) -> None:
        with self._files.index.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?, ?)", self._stats)

    def _folder(self, folders: Folders, folder: str) -> tuple[list[Entry], list[str]]:
        known = {row[0]: row for row in self._files.index.rows(_KNOWN, (folder,))}
        changed: list[Entry] = []
        inner: list[str] = []
        try:
            descriptor = folders.at(folder)
            with os.scandir(descriptor) as found:
                for item in found:
                    if item.name == OWN and not folder:
                        continue
                    row = known.pop(item.name, None)
                    try:
                        now = item.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if row is not None and _is_settled(row, now):
                        continue
                    self._one(folder, descriptor, item.name, now, row, changed, inner)
        except PermissionError:
            self._passed_over.add(folder, _UNREADABLE)
            return [], []
        except FileNotFoundError:
            if not folder:
                raise
            return [], []
        for row in known.values():
            changed += self._gone(folder, row)
        return changed, inner

    def _one(
        self,
        folder: str,
        descriptor: int,
        name: str,
        now: os.stat_result,
        row: Any,
        changed: list[Entry],
        inner: list[str],
    ) -> None:
        path = joined(folder, name)
        if problem := _name_problem(path):
            self._passed_over.add(path, problem)
            return
        known = entry_of((folder, *row[:7])) if row is not None else None
        if S_ISDIR(now.st_mode):
            inner.append(path)
            entry: Entry | None = Entry(path, EntryKind.DIRECTORY)
        elif S_ISREG(now.st_mode):
            entry = self._file(folder, descriptor, name, known)
        elif S_ISLNK(now.st_mode):
            entry = self._link(path, name, descriptor)
        else:
            self._passed_over.add(path, _SPECIAL)
            entry = None
        if entry is None and row is not None:
            changed += self._gone(folder, row)
        if entry is None or entry == known:
            return
        if known is not None and known.kind is EntryKind.DIRECTORY and entry.kind is not known.kind:
            changed += self._below(path)
        if not entry_problem(entry):
            changed.append(entry)

    def _file(self, folder: str, descriptor: int, name: str, known: Entry | None) -> Entry | None:
        """None when it cannot be read, or changes under us."""
        try:
            file = open_in(descriptor, name)
        except PermissionError:
            self._passed_over.add(joined(folder, name), _UNREADABLE)
            return known
        except OSError:
            return known
        with opened(file):
            seen, before = now_ns(), os.fstat(file)
            digest = digest_of(file)
            after = os.fstat(file)
        stat = stat_of(after)
        if stat_of(before) != stat or not S_ISREG(after.st_mode):
            return known
        self._stats.append((folder, name, stat.size, stat.mtime_ns, stat.ino, stat.ctime_ns, seen))
        executable = bool(after.st_mode & 0o100)
        mtime_ns = max(stat.mtime_ns, 0)
        return Entry(joined(folder, name), EntryKind.FILE, executable, stat.size, mtime_ns, digest)

    def _link(self, path: str, name: str, descriptor: int) -> Entry | None:
        """None when it leads where none may."""
        try:
            target = os.readlink(name, dir_fd=descriptor)
            problem = target_problem(path, target)
        except UnicodeEncodeError:
            problem = "is a symbolic link to a name that is not UTF-8"
        except OSError:
            return None
        if problem:
            self._passed_over.add(path, problem)
            return None
        return Entry(path, EntryKind.SYMLINK, target=target)

    def _gone(self, folder: str, row: Any) -> Iterator[Entry]:
        path = joined(folder, row[0])
        if row[1] == EntryKind.DIRECTORY:
            yield from self._below(path)
        yield Entry(path, EntryKind.NONE)

    def _below(self, path: str) -> Iterator[Entry]:
        for row in self._files.index.rows(_BELOW, {"path": path}):
            yield Entry(joined(row[0], row[1]), EntryKind.NONE)


def _is_settled(row: Any, now: os.stat_result) -> bool:
    """The usual case, for each file of each look: it is what was seen, and that was long ago."""
    return bool(
        row[1] == EntryKind.FILE
        and row[8] == now.st_mtime_ns
        and row[10] == now.st_ctime_ns
        and row[7] == now.st_size
        and row[9] == now.st_ino
        and (row[8] + GRANULE_NS < row[11] or row[10] + GRANULE_NS < row[11])
    )


def _name_problem(path: str) -> str:
    """Why this is no path of a tree; empty when it is."""
    try:
        return path_problem(path)
    except UnicodeEncodeError:  # bytes that are no text
        return "has a name that is not UTF-8"
