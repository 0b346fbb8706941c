"""The last steps before a commit: checks that programs changed nothing, and provides the content of every file.

All contents are on disk before the one transaction that creates the revision.
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
from hai_backend.workspaces.contents import copy_and_verify, opened
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.materialize import NewDirectories
from hai_backend.workspaces.push.overwrite_guard import require_unchanged
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage.workers import (
    FILE_SECONDS,
    FILES_PER_BATCH,
    TreeWorker,
    WorkerPool,
    batches,
)

_MAX_SYNCED_ONE_BY_ONE = 16  # more files than that are synced together
_EMPTY = blake3().digest()


@dataclass(frozen=True, slots=True)
class ReceivedContents:
    """What a push has stored before its commit."""

    new_directories: NewDirectories
    assemblies: Mapping[bytes, Assembly]


def commit_staged(
    files: WorkspaceFiles, author: Author, received: ReceivedContents | None = None
) -> Revision:
    """Commits the staged changes and applies them to the tree. Raises Conflict, and then nothing has changed."""
    if received is not None:
        received.new_directories.prepare_commit()
    require_unchanged(files)
    _complete(files, received.assemblies if received is not None else {})
    ready = prepare_contents(files)
    is_few = len(ready) <= _MAX_SYNCED_ONE_BY_ONE and (
        received is None or not received.new_directories.is_used
    )
    files.incoming.sync(ready if is_few else None)
    revision = staging.commit(files.index, author)
    apply.apply(files)
    return revision


def _complete(files: WorkspaceFiles, assemblies: Mapping[bytes, Assembly]) -> None:
    """Renames large files whose chunks are complete to their digests."""
    incomplete = {name for name in files.incoming.names() if name.endswith(".part")}
    query = "SELECT DISTINCT digest, size FROM staged WHERE kind = 1 AND laid IS NULL"
    for digest, size in files.index.rows(query) if incomplete else ():
        if part_of(digest) in incomplete and not files.incoming.has(digest.hex()):
            chunks.complete_file(files, digest, size, assemblies.get(digest))


class _RequiredContent(NamedTuple):
    """A name in `incoming`, the content that it must have, and the file that needs it."""

    source: str
    digest: bytes
    folder: str
    name: str


def prepare_contents(files: WorkspaceFiles) -> list[str]:
    """Provides a separate content in `incoming` for every staged file. Returns some of their names. Raises Conflict.

    A content is named by its digest. When several files share one, all but the first get a copy, whose name is
    recorded.
    """
    copies: list[_RequiredContent] = []
    ready: list[str] = []
    provider = partial(_ContentProvider, files, set(files.incoming.names()))
    with closing(WorkerPool(provider, FILE_SECONDS, files.storage_speed)) as pool:
        missing = _provide_all(pool, _first_of_each(files, copies, ready)) + _provide_all(
            pool, copies
        )
    if missing:
        raise Conflict(
            f"the contents of {len(missing)} files are missing, such as {missing[0]}: they have not arrived, "
            "or a program changed them in place; push again, or restore other paths",
            reason="CONTENTS_MISSING",
        )
    with files.index.transaction() as db:
        rows = ((required.source, required.folder, required.name) for required in copies)
        db.executemany("UPDATE staged SET source = ? WHERE folder = ? AND name = ?", rows)
    return ready


def _provide_all(
    pool: WorkerPool[_ContentProvider], required: Iterable[_RequiredContent]
) -> list[str]:
    return list(
        chain.from_iterable(
            pool.map_ordered(_ContentProvider.provide, batches(required, FILES_PER_BATCH))
        )
    )


def _first_of_each(
    files: WorkspaceFiles, copies: list[_RequiredContent], ready: list[str]
) -> Iterator[_RequiredContent]:
    """Yields each content once; further files with that content are added to `copies`, and some names to `ready`."""
    duplicates = """SELECT digest FROM staged WHERE kind = 1 AND laid IS NULL GROUP BY digest HAVING COUNT(*) > 1"""
    used = {row[0]: 0 for row in files.index.rows(duplicates)}
    for folder, name, digest in _staged_files(files):
        source = digest.hex()
        if digest in used:
            used[digest] += 1
            if used[digest] > 1:
                source = f"{source}.{used[digest]}"
        required = _RequiredContent(source, digest, folder, name)
        if len(ready) <= _MAX_SYNCED_ONE_BY_ONE:
            ready.append(source)
        if used.get(digest, 0) > 1:
            copies.append(required)
        else:
            yield required


def _staged_files(files: WorkspaceFiles) -> Iterator[tuple[str, str, bytes]]:
    query = """SELECT folder, name, digest FROM staged
        WHERE kind = 1 AND laid IS NULL AND (folder, name) > (?, ?)
        ORDER BY folder, name LIMIT 2000"""
    after = ("", "")
    while rows := files.index.rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        yield from rows


class _ContentProvider(TreeWorker):
    """Provides contents in `incoming`, which has the names `listed` already. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, listed: set[str]) -> None:
        super().__init__(files.folders())
        self._files = files
        self._listed = listed

    def provide(self, contents: list[_RequiredContent]) -> list[str]:
        """Returns the paths whose content is not available. Raises OSError."""
        has = self._files.incoming.has
        needed = [required for required in contents if not has(required.source, self._listed)]
        missing = [joined(r.folder, r.name) for r in needed if not self._create(r.digest, r.source)]
        self.done += len(needed)
        return missing

    def _create(self, digest: bytes, source: str) -> bool:
        files, incoming = self._files, self._files.incoming
        if digest == _EMPTY:
            incoming.put(source, memoryview(b""))
            return True
        arrived = incoming.has(digest.hex())
        found = incoming.open(digest.hex()) if arrived else files.find(digest, self.folders)
        if found is None:
            return False
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with (
            opened(found),
            opened(os.open(source, flags, 0o644, dir_fd=incoming.folder)) as target,
        ):
            copied = copy_and_verify(found, target, digest)
        if not copied:
            incoming.remove(source)
        return copied
