"""The last moments before a commit: what programs wrote is not replaced, and every file has a content of its own.

All of it is on disk before the one transaction that makes the revision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from blake3 import blake3

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import EntryKind, Revision, joined, target_problem
from hai_backend.workspaces import applying, chunks, staging
from hai_backend.workspaces.assembling import Assembly
from hai_backend.workspaces.contents import copy_whole, digest_of, open_in, opened
from hai_backend.workspaces.files import Files, is_still
from hai_backend.workspaces.folders import Folders
from hai_backend.workspaces.laying import Laid
from hai_backend.workspaces.sources import part_of
from hai_backend.workspaces.staging import Author
from hai_backend.workspaces.stats import Stat

_FEW = 16  # files that are synced one by one
_EMPTY = blake3().digest()


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a push has done already."""

    laid: Laid
    made: Mapping[bytes, Assembly]


def carry_out(files: Files, author: Author, arrived: Arrived | None = None) -> Revision:
    """Make what is staged and settled a revision, and the tree so. Raises Conflict, and then nothing has changed."""
    if arrived is not None:
        arrived.laid.settle()
    require_as_known(files)
    _complete(files, arrived.made if arrived is not None else {})
    ready = prepare(files)
    few = len(ready) <= _FEW and (arrived is None or not arrived.laid.used)
    files.incoming.sync(ready if few else None)
    revision = staging.commit(files.index, author)
    applying.apply(files)
    return revision


def require_as_known(files: Files) -> None:
    """Raises Conflict when programs changed what is to be replaced: that must become a revision first."""
    with files.folders() as folders:
        _require_as_known(files, folders, "(s.laid IS NULL OR s.kind = 2)")
        laid = files.index.rows("SELECT folder, name FROM staged WHERE kind = 2 AND laid NOT NULL")
        if any(_is_folder(files, folders, joined(*top)) for top in laid):
            _require_as_known(files, folders, "s.laid NOT NULL")


def _require_as_known(files: Files, folders: Folders, which: str) -> None:
    query = f"""SELECT s.folder, s.name, s.kind, e.digest, t.size, t.mtime_ns, t.ino, t.ctime_ns, t.seen_ns
        FROM staged s LEFT JOIN entries e ON e.folder = s.folder AND e.name = s.name AND e.gone = 0
        LEFT JOIN stats t ON t.folder = s.folder AND t.name = s.name
        WHERE (e.kind = 1 OR e.kind IS NULL) AND {which} AND (s.folder, s.name) > (?, ?)
        ORDER BY s.folder, s.name LIMIT 2000"""
    after, absent = ("", ""), None
    while rows := files.index.rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        for folder, name, kind, digest, *seen in rows:
            if folder == absent:
                continue
            if not _is_folder(files, folders, folder):
                absent = folder
            elif not (
                _is_free(folders.at(folder), name, kind)
                if digest is None
                else _is_known(folders.at(folder), name, digest, seen)
            ):
                raise _written(joined(folder, name))


def _is_folder(files: Files, folders: Folders, folder: str) -> bool:
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


def _is_known(folder: int, name: str, digest: bytes, seen: list[Any]) -> bool:
    try:
        file = open_in(folder, name)
    except OSError:
        return False
    known = Stat(*seen) if seen[0] is not None else None
    with opened(file):
        return is_still(file, known, digest)


def _complete(files: Files, made: Mapping[bytes, Assembly]) -> None:
    """Large files whose chunks are all here get their names."""
    parts = {name for name in files.incoming.names() if name.endswith(".part")}
    query = "SELECT DISTINCT digest, size FROM staged WHERE kind = 1 AND laid IS NULL"
    for digest, size in files.index.rows(query) if parts else ():
        if part_of(digest) in parts and not files.incoming.has(digest.hex()):
            chunks.complete(files, digest, size, made.get(digest))


def prepare(files: Files) -> list[str]:
    """Give every staged file a content of its own in `incoming`; answers some of their names. Raises Conflict.

    A content is named by its digest; who shares it with others has a copy, and is told its name.
    """
    twice = """SELECT digest FROM staged WHERE kind = 1 AND laid IS NULL GROUP BY digest HAVING COUNT(*) > 1"""
    used = {row[0]: 0 for row in files.index.rows(twice)}
    lacking: list[str] = []
    ready: list[str] = []
    copies: list[tuple[str, str, str]] = []
    for folder, name, digest in _staged_files(files):
        source = digest.hex()
        if digest in used:
            used[digest] += 1
            if used[digest] > 1:
                source = f"{source}.{used[digest]}"
                copies.append((source, folder, name))
        if not _provide(files, digest, source):
            lacking.append(joined(folder, name))
        elif len(ready) <= _FEW:
            ready.append(source)
    if lacking:
        raise Conflict(
            f"the contents of {len(lacking)} files are not here, as of {lacking[0]}: they have not arrived, "
            "or a program changed them in place; push again, or restore other paths",
            reason="CONTENTS_MISSING",
        )
    with files.index.transaction() as db:
        db.executemany("UPDATE staged SET source = ? WHERE folder = ? AND name = ?", copies)
    return ready


def _staged_files(files: Files) -> Iterator[tuple[str, str, bytes]]:
    query = """SELECT folder, name, digest FROM staged
        WHERE kind = 1 AND laid IS NULL AND (folder, name) > (?, ?)
        ORDER BY folder, name LIMIT 2000"""
    after = ("", "")
    while rows := files.index.rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        yield from rows


def _provide(files: Files, digest: bytes, source: str) -> bool:
    incoming = files.incoming
    if incoming.has(source):
        return True
    if digest == _EMPTY:
        incoming.put(source, memoryview(b""))
        return True
    found = incoming.open(digest.hex()) if incoming.has(digest.hex()) else files.find(digest)
    if found is None:
        return False
    target = os.open(
        source, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644, dir_fd=incoming.folder
    )
    with opened(found), opened(target):
        copy_whole(found, target)
        right = digest_of(target) == digest
    if not right:
        incoming.remove(source)
    return right


def _written(path: str) -> Conflict:
    return Conflict(
        f"a program on the cluster changed {path} since the newest revision; look at the tree again",
        reason="REVISION_CHANGED",
    )
