"""Prepares commits: checks that no program has changed the files to overwrite, and provides all contents.

All contents are on disk before the transaction that creates the revision.
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
from hai_backend.workspaces.chunks.sources import partial_name
from hai_backend.workspaces.contents import closing_descriptor, copy_and_verify
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
    split_batches,
)

_MAX_SYNCED_ONE_BY_ONE = 16  # more files than that are synced together
_EMPTY = blake3().digest()


@dataclass(frozen=True, slots=True)
class ReceivedContents:
    """The contents that a push has stored before its commit."""

    new_directories: NewDirectories
    assemblies: Mapping[bytes, Assembly]


def commit_staged(
    files: WorkspaceFiles, author: Author, received: ReceivedContents | None = None
) -> Revision:
    """Commit the staged changes, and apply them to the tree. If this raises Conflict, nothing has changed."""
    if received is not None:
        received.new_directories.prepare_commit()
    require_unchanged(files)
    _complete_large_files(files, received.assemblies if received is not None else {})
    names = prepare_contents(files)
    sync_one_by_one = len(names) <= _MAX_SYNCED_ONE_BY_ONE and (
        received is None or not received.new_directories.is_used
    )
    files.incoming.sync(names if sync_one_by_one else None)
    revision = staging.commit(files.index, author)
    apply.apply_pending(files)
    return revision


def _complete_large_files(files: WorkspaceFiles, assemblies: Mapping[bytes, Assembly]) -> None:
    """Rename each large file whose chunks have all arrived: its digest becomes its name.

    `laid` is the time at which a row was applied to the tree; NULL before.
    """
    incomplete = {name for name in files.incoming.list_names() if name.endswith(".part")}
    query = "SELECT DISTINCT digest, size FROM staged WHERE kind = 1 AND laid IS NULL"
    for digest, size in files.index.fetch_rows(query) if incomplete else ():
        if partial_name(digest) in incomplete and not files.incoming.has(digest.hex()):
            chunks.complete_file(files, digest, size, assemblies.get(digest))


class _RequiredContent(NamedTuple):
    """A name in `incoming`, the content that this file must have, and the path that needs it."""

    incoming_name: str
    digest: bytes
    folder: str
    name: str


def prepare_contents(files: WorkspaceFiles) -> list[str]:
    """Provide a separate file in `incoming` for every staged file. Return the names. Raise Conflict.

    The file is named by its digest. If several staged files have the same content, all but the first get a copy under
    another name, which is recorded. The list of names is cut off after
    _MAX_SYNCED_ONE_BY_ONE + 1 names, because the caller then syncs everything together.
    """
    copies: list[_RequiredContent] = []
    names: list[str] = []
    provider = partial(_ContentProvider, files, set(files.incoming.list_names()))
    with closing(WorkerPool(provider, FILE_SECONDS, files.storage_speed)) as pool:
        missing = _provide_all(pool, _select_first_of_each(files, copies, names))
        missing += _provide_all(pool, copies)
    if missing:
        raise Conflict(
            f"the contents of {len(missing)} files are missing, such as {missing[0]}: they have not arrived, "
            "or a program changed them in place; push again, or restore other paths",
            reason="CONTENTS_MISSING",
        )
    with files.index.transaction() as db:
        rows = ((required.incoming_name, required.folder, required.name) for required in copies)
        db.executemany("UPDATE staged SET source = ? WHERE folder = ? AND name = ?", rows)
    return names


def _provide_all(
    pool: WorkerPool[_ContentProvider], required: Iterable[_RequiredContent]
) -> list[str]:
    """Provide contents. Return the paths whose content is not available."""
    missing = pool.map_ordered(_ContentProvider.provide, split_batches(required, FILES_PER_BATCH))
    return list(chain.from_iterable(missing))


def _select_first_of_each(
    files: WorkspaceFiles, copies: list[_RequiredContent], names: list[str]
) -> Iterator[_RequiredContent]:
    """Yield each content once. Add further files with that content to `copies`, and the first names to `names`."""
    duplicates = """SELECT digest FROM staged WHERE kind = 1 AND laid IS NULL GROUP BY digest HAVING COUNT(*) > 1"""
    uses = {row[0]: 0 for row in files.index.fetch_rows(duplicates)}
    for folder, name, digest in _staged_files(files):
        incoming_name = digest.hex()
        if digest in uses:
            uses[digest] += 1
            if uses[digest] > 1:
                incoming_name = f"{incoming_name}.{uses[digest]}"
        required = _RequiredContent(incoming_name, digest, folder, name)
        if len(names) <= _MAX_SYNCED_ONE_BY_ONE:
            names.append(incoming_name)
        if uses.get(digest, 0) > 1:
            copies.append(required)
        else:
            yield required


def _staged_files(files: WorkspaceFiles) -> Iterator[tuple[str, str, bytes]]:
    query = """SELECT folder, name, digest FROM staged
        WHERE kind = 1 AND laid IS NULL AND (folder, name) > (?, ?)
        ORDER BY folder, name LIMIT 2000"""
    after = ("", "")
    while rows := files.index.fetch_rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        yield from rows


class _ContentProvider(TreeWorker):
    """Provides contents in `incoming`, which had the names `names_at_start`. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, names_at_start: set[str]) -> None:
        super().__init__(files.open_tree())
        self._files = files
        self._names_at_start = names_at_start

    def provide(self, contents: list[_RequiredContent]) -> list[str]:
        """Create the missing files. Return the paths whose content is not available. Raise OSError."""
        has = self._files.incoming.has
        needed = [
            required
            for required in contents
            if not has(required.incoming_name, self._names_at_start)
        ]
        missing = [
            joined(r.folder, r.name) for r in needed if not self._create(r.digest, r.incoming_name)
        ]
        self.done += len(needed)
        return missing

    def _create(self, digest: bytes, incoming_name: str) -> bool:
        """Create a file in `incoming` from a stored content. Return False if there is none."""
        files, incoming = self._files, self._files.incoming
        if digest == _EMPTY:
            incoming.put(incoming_name, memoryview(b""))
            return True
        arrived = incoming.has(digest.hex())
        content = (
            incoming.open(digest.hex()) if arrived else files.find_content(digest, self.folders)
        )
        if content is None:
            return False
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with (
            closing_descriptor(content),
            closing_descriptor(
                os.open(incoming_name, flags, 0o644, dir_fd=incoming.folder)
            ) as target,
        ):
            copied = copy_and_verify(content, target, digest)
        if not copied:
            incoming.remove(incoming_name)
        return copied
