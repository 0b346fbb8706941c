"""What programs wrote since the newest revision is not replaced: a change finds what it expects, or nothing happens."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import EntryKind, joined, target_problem
from hai_backend.workspaces.files import Files, is_still_at
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.file_stat import Stat
from hai_backend.workspaces.storage.workers import NAME_SECONDS, NAMES, Walker, Workers, parts


def require_as_known(files: Files) -> None:
    """Raises Conflict when programs changed what is to be replaced: that must become a revision first."""
    hands = Workers(partial(_Checker, files), NAME_SECONDS, files.storage)
    with closing(hands), files.folders() as folders:
        _require_as_known(files, hands, "(s.laid IS NULL OR s.kind = 2)")
        laid = files.index.rows("SELECT folder, name FROM staged WHERE kind = 2 AND laid NOT NULL")
        if any(_is_folder(files, folders, joined(*top)) for top in laid):
            _require_as_known(files, hands, "s.laid NOT NULL")


def _require_as_known(files: Files, hands: Workers[_Checker], which: str) -> None:
    query = f"""SELECT s.folder, s.name, s.kind, e.kind, e.digest, e.target,
          t.size, t.mtime_ns, t.ino, t.ctime_ns, t.seen_ns
        FROM staged s LEFT JOIN entries e ON e.folder = s.folder AND e.name = s.name AND e.gone = 0
        LEFT JOIN stats t ON t.folder = s.folder AND t.name = s.name
        WHERE (e.kind IN (1, 3) OR e.kind IS NULL) AND {which} AND (s.folder, s.name) > (?, ?)
        ORDER BY s.folder, s.name LIMIT 2000"""
    after = ("", "")
    while rows := files.index.rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        for _ in hands.each(_Checker.require, parts(rows, NAMES)):
            pass


class _Checker(Walker):
    """Compares the tree with rows. One thread at a time."""

    def __init__(self, files: Files) -> None:
        super().__init__(files.folders())
        self._files = files

    def require(self, rows: list[Any]) -> None:
        """Raises Conflict."""
        self.done += len(rows)
        absent = None
        for folder, name, kind, *known in rows:
            if folder == absent:
                continue
            if not _is_folder(self._files, self.folders, folder):
                absent = folder
            elif not _is_as_known(self.folders.at(folder), name, kind, known):
                raise _written(joined(folder, name))


def _is_folder(files: Files, folders: Directories, folder: str) -> bool:
    """What is missing altogether is made again, and what never was a directory makes way for one."""
    try:
        folders.at(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        known = files.index.entry(folder, files.index.newest().number)
        if known is not None and known.kind is EntryKind.DIRECTORY:
            raise _written(folder) from error
        return False
    return True


def _is_free(folder: int, name: str, kind: int) -> bool:
    """Nothing that a look would make part of a revision is in the way; anything else will be set aside."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if S_ISLNK(mode):
            return bool(target_problem(name, os.readlink(name, dir_fd=folder)))
    except FileNotFoundError:
        return True
    if S_ISDIR(mode):
        return kind == EntryKind.DIRECTORY
    return not S_ISREG(mode)


def _is_as_known(folder: int, name: str, kind: int, known: list[Any]) -> bool:
    """`known`: kind, digest and target of what the newest revision has here, and the file's stat; or nothing."""
    kind_before, digest, target, *seen = known
    if kind_before is None:
        return _is_free(folder, name, kind)
    if kind_before == EntryKind.SYMLINK:
        return _is_link(folder, name, target)
    return _is_known(folder, name, digest, seen)


def _is_link(folder: int, name: str, target: str) -> bool:
    try:
        return os.readlink(name, dir_fd=folder) == target
    except OSError:
        return False


def _is_known(folder: int, name: str, digest: bytes, seen: list[Any]) -> bool:
    known = Stat(*seen) if seen[0] is not None else None
    try:
        return is_still_at(folder, name, known, digest)
    except OSError:
        return False


def _written(path: str) -> Conflict:
    return Conflict(
        f"a program on the cluster changed {path} since the newest revision; look at the tree again",
        reason="REVISION_CHANGED",
    )
