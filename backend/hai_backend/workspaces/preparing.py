"""The last moments before a commit: what programs wrote is not replaced, and every file has a content of its own.

All of it is on disk before the one transaction that makes the revision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blake3 import blake3

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Revision, joined
from hai_backend.workspaces import applying, chunks, staging
from hai_backend.workspaces.assembling import Assembly
from hai_backend.workspaces.contents import copy_whole, opened
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.folders import Folders
from hai_backend.workspaces.laying import Laid
from hai_backend.workspaces.sources import part_of
from hai_backend.workspaces.staging import Author
from hai_backend.workspaces.untouched import require_as_known

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
    with files.folders() as tree:
        ready = prepare(files, tree)
    few = len(ready) <= _FEW and (arrived is None or not arrived.laid.used)
    files.incoming.sync(ready if few else None)
    revision = staging.commit(files.index, author)
    applying.apply(files)
    return revision


def _complete(files: Files, made: Mapping[bytes, Assembly]) -> None:
    """Large files whose chunks are all here get their names."""
    parts = {name for name in files.incoming.names() if name.endswith(".part")}
    query = "SELECT DISTINCT digest, size FROM staged WHERE kind = 1 AND laid IS NULL"
    for digest, size in files.index.rows(query) if parts else ():
        if part_of(digest) in parts and not files.incoming.has(digest.hex()):
            chunks.complete(files, digest, size, made.get(digest))


def prepare(files: Files, tree: Folders) -> list[str]:
    """Give every staged file a content of its own in `incoming`; answers some of their names. Raises Conflict.

    A content is named by its digest; who shares it with others has a copy, and is told its name.
    """
    twice = """SELECT digest FROM staged WHERE kind = 1 AND laid IS NULL GROUP BY digest HAVING COUNT(*) > 1"""
    used = {row[0]: 0 for row in files.index.rows(twice)}
    listed = set(files.incoming.names())
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
        if not files.incoming.has(source, listed) and not _provide(files, tree, digest, source):
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


def _provide(files: Files, tree: Folders, digest: bytes, source: str) -> bool:
    incoming = files.incoming
    if digest == _EMPTY:
        incoming.put(source, memoryview(b""))
        return True
    found = incoming.open(digest.hex()) if incoming.has(digest.hex()) else files.find(digest, tree)
    if found is None:
        return False
    target = os.open(
        source, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644, dir_fd=incoming.folder
    )
    with opened(found), opened(target):
        right = copy_whole(found, target, digest)
    if not right:
        incoming.remove(source)
    return right
