"""The last moments before a commit: what programs wrote is not replaced, and every file has a content of its own.

All of it is on disk before the one transaction that makes the revision.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from blake3 import blake3

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Revision, joined
from hai_backend.workspaces.chunks import chunks
from hai_backend.workspaces.chunks.assembly import Assembly
from hai_backend.workspaces.chunks.sources import part_of
from hai_backend.workspaces.contents import copy_whole, opened
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.materialize import Laid
from hai_backend.workspaces.push.overwrite_guard import require_as_known
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage.workers import FILE_SECONDS, PART, Walker, Workers, parts

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
    apply.apply(files)
    return revision


def _complete(files: Files, made: Mapping[bytes, Assembly]) -> None:
    """Large files whose chunks are all here get their names."""
    parts = {name for name in files.incoming.names() if name.endswith(".part")}
    query = "SELECT DISTINCT digest, size FROM staged WHERE kind = 1 AND laid IS NULL"
    for digest, size in files.index.rows(query) if parts else ():
        if part_of(digest) in parts and not files.incoming.has(digest.hex()):
            chunks.complete(files, digest, size, made.get(digest))


class _Wanted(NamedTuple):
    """A name in `incoming`, what it must hold, and for which file."""

    source: str
    digest: bytes
    folder: str
    name: str


def prepare(files: Files) -> list[str]:
    """Give every staged file a content of its own in `incoming`; answers some of their names. Raises Conflict.

    A content is named by its digest; who shares it with others has a copy, and is told its name.
    """
    copies: list[_Wanted] = []
    ready: list[str] = []
    provider = partial(_Provider, files, set(files.incoming.names()))
    with closing(Workers(provider, FILE_SECONDS, files.storage)) as hands:
        lacking = _lacking(hands, _first(files, copies, ready)) + _lacking(hands, copies)
    if lacking:
        raise Conflict(
            f"the contents of {len(lacking)} files are not here, as of {lacking[0]}: they have not arrived, "
            "or a program changed them in place; push again, or restore other paths",
            reason="CONTENTS_MISSING",
        )
    with files.index.transaction() as db:
        rows = ((each.source, each.folder, each.name) for each in copies)
        db.executemany("UPDATE staged SET source = ? WHERE folder = ? AND name = ?", rows)
    return ready


def _lacking(hands: Workers[_Provider], wanted: Iterable[_Wanted]) -> list[str]:
    return list(chain.from_iterable(hands.each(_Provider.provide, parts(wanted, PART))))


def _first(files: Files, copies: list[_Wanted], ready: list[str]) -> Iterator[_Wanted]:
    """Each content once; who wants it, too, is added to `copies`. Some names are added to `ready`."""
    twice = """SELECT digest FROM staged WHERE kind = 1 AND laid IS NULL GROUP BY digest HAVING COUNT(*) > 1"""
    used = {row[0]: 0 for row in files.index.rows(twice)}
    for folder, name, digest in _staged_files(files):
        source = digest.hex()
        if digest in used:
            used[digest] += 1
            if used[digest] > 1:
                source = f"{source}.{used[digest]}"
        wanted = _Wanted(source, digest, folder, name)
        if len(ready) <= _FEW:
            ready.append(source)
        if used.get(digest, 0) > 1:
            copies.append(wanted)
        else:
            yield wanted


def _staged_files(files: Files) -> Iterator[tuple[str, str, bytes]]:
    query = """SELECT folder, name, digest FROM staged
        WHERE kind = 1 AND laid IS NULL AND (folder, name) > (?, ?)
        ORDER BY folder, name LIMIT 2000"""
    after = ("", "")
    while rows := files.index.rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        yield from rows


class _Provider(Walker):
    """Sees to it that contents are in `incoming`, of which `listed` are. One thread at a time."""

    def __init__(self, files: Files, listed: set[str]) -> None:
        super().__init__(files.folders())
        self._files = files
        self._listed = listed

    def provide(self, some: list[_Wanted]) -> list[str]:
        """Answers the paths of those that are not to be had. Raises OSError."""
        has = self._files.incoming.has
        absent = [each for each in some if not has(each.source, self._listed)]
        lacking = [joined(w.folder, w.name) for w in absent if not self._made(w.digest, w.source)]
        self.done += len(absent)
        return lacking

    def _made(self, digest: bytes, source: str) -> bool:
        files, incoming = self._files, self._files.incoming
        if digest == _EMPTY:
            incoming.put(source, memoryview(b""))
            return True
        here = incoming.has(digest.hex())
        found = incoming.open(digest.hex()) if here else files.find(digest, self.folders)
        if found is None:
            return False
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with (
            opened(found),
            opened(os.open(source, flags, 0o644, dir_fd=incoming.folder)) as target,
        ):
            right = copy_whole(found, target, digest)
        if not right:
            incoming.remove(source)
        return right
