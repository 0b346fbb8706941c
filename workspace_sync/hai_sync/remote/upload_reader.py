"""Reads files to push: small ones completely, large ones as a list of chunks.

A file that changes while it is read raises FileChanged. The sync then starts again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from hai_sync.core.chunks import LARGEST, UNCHUNKED_BYTES, ChunkRef, compute_digest, cut
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.errors import NOT_FOUND, FileChanged
from hai_sync.file_fingerprint import Fingerprint, fingerprint
from hai_sync.hashing import compute_file_digest, open_file, read_all
from hai_sync.remote.contents import BATCH_BYTES, MAX_CHUNKS_BYTES

_MAX_ENTRIES = 600  # so many links with paths and targets of 3000 bytes fit into a message of 4 MiB
_MAX_CHUNKS = (
    128  # in one recipe message, about 32 MB, which are sent while the next chunks are cut
)


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A file that is sent in chunks."""

    path: str
    source: str
    entry: Entry
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class RecipePart:
    """Consecutive chunks of a large file."""

    large: LargeFile
    chunks: Sequence[ChunkRef]


@dataclass(slots=True)
class Batch:
    """Some changes, with the contents of the small files among them."""

    entries: list[tuple[str, Entry | None]] = field(default_factory=list)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    large: dict[bytes, LargeFile] = field(default_factory=dict)
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    bytes: int = 0


def group_changes(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield groups of changes with a few megabytes. A large file forms a group of its own."""
    group: list[Change] = []
    size = 0
    for change in changes:
        change_size = change.new.size if change.new is not None else 0
        if group and (size + change_size > BATCH_BYTES or len(group) >= _MAX_ENTRIES):
            yield group
            group, size = [], 0
        group.append(change)
        size += change_size
    if group:
        yield group


def read_batch(
    root: Path,
    changes: Sequence[Change],
    sources: Mapping[str, str],
    fingerprint: Mapping[str, Fingerprint],
) -> Batch:
    """Read and hash the files of a group. A missing file becomes a removal. Raises FileChanged."""
    batch = Batch()
    at = str(root)
    for change in changes:
        new = change.new
        if new is None or new.kind is not Kind.FILE:
            batch.entries.append((change.path, new))
            continue
        source = sources.get(change.path, change.path)
        try:
            if not _read_small(batch, at, change.path, source, new, fingerprint.get(source)):
                _read(batch, at, change.path, source, new)
        except NOT_FOUND:
            # the server accepts removals of unknown paths
            batch.entries.append((change.path, None))
        except OSError as error:
            raise FileChanged(change.path, f"it cannot be read: {error.strerror}") from error
    return batch


def _read_small(
    batch: Batch, root: str, path: str, source: str, entry: Entry, expected: Fingerprint | None
) -> bool:
    """Read a small file that has not changed since the scan, with one fstat. If it returns False, use `_read`."""
    size = entry.size
    if expected is None or size > UNCHUNKED_BYTES:
        return False
    file = open_file(root, source)
    try:
        data = os.read(file, size + 1)
        if fingerprint(os.fstat(file)) != expected or len(data) != size:
            return False
    finally:
        os.close(file)
    digest = compute_digest(data)
    batch.contents[digest] = data
    batch.bytes += size
    entry = Entry(entry.kind, digest, size, entry.executable, "", entry.mtime_ns)
    batch.entries.append((path, entry))
    batch.fingerprints[path] = expected
    return True


def _read(batch: Batch, root: str, path: str, source: str, entry: Entry) -> None:
    """Read or hash one file completely. Raises FileChanged if it changes meanwhile."""
    file = open_file(root, source)
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise FileChanged(path, "it is not a regular file any more")
        if before.st_size > UNCHUNKED_BYTES:
            entry = _entry_as_read(entry, compute_file_digest(file, before.st_size), before)
            batch.large[entry.digest] = LargeFile(path, source, entry, fingerprint(before))
        else:
            data = read_all(file, before.st_size)
            digest = compute_digest(data)
            entry = _entry_as_read(entry, digest, before)
            batch.contents[digest] = data
            if len(data) != before.st_size:
                raise FileChanged(path)
        after = fingerprint(os.fstat(file))
    finally:
        os.close(file)
    if after != fingerprint(before):
        raise FileChanged(path)
    batch.bytes += entry.size
    batch.entries.append((path, entry))
    batch.fingerprints[path] = after


def _entry_as_read(entry: Entry, digest: bytes, status: os.stat_result) -> Entry:
    executable = bool(status.st_mode & 0o100)
    mtime_ns = max(0, status.st_mtime_ns)
    return Entry(entry.kind, digest, status.st_size, executable, "", mtime_ns)


def recipe_parts(root: Path, large: LargeFile) -> Iterator[RecipePart]:
    """Yield the parts of the recipe of a large file. Raises FileChanged."""
    with _open_unchanged(root, large) as file:
        chunks = (
            chunk for chunk, _ in cut(lambda block: os.readv(file, [block]), large.entry.size)
        )
        while group := list(islice(chunks, _MAX_CHUNKS)):
            if group[-1].offset + group[-1].size > large.entry.size:
                raise FileChanged(large.path)
            yield RecipePart(large, group)


def chunk_groups(chunks: Sequence[ChunkRef], requested: set[bytes]) -> Iterator[list[ChunkRef]]:
    """Yield groups of the requested chunks, each chunk once, for messages of about one size."""
    group: list[ChunkRef] = []
    size = 0
    for chunk in chunks:
        if chunk.digest not in requested:
            continue
        requested.discard(chunk.digest)
        group.append(chunk)
        size += chunk.size
        if size >= MAX_CHUNKS_BYTES - LARGEST:
            yield group
            group, size = [], 0
    if group:
        yield group


@contextmanager
def _open_unchanged(root: Path, large: LargeFile) -> Iterator[int]:
    """Open a file. Raises FileChanged if it is unreadable, or if it has changed when the block ends."""
    try:
        file = open_file(root, large.source)
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
        raise FileChanged(large.path, reason, removed=isinstance(error, NOT_FOUND)) from error
    try:
        yield file
        if fingerprint(os.fstat(file)) != large.fingerprint:
            raise FileChanged(large.path)
    finally:
        os.close(file)


def read_chunks(root: Path, large: LargeFile, chunks: Sequence[ChunkRef]) -> list[bytes]:
    """Return the bytes of chunks. Adjacent chunks are read at once. Raises FileChanged."""
    with _open_unchanged(root, large) as file:
        return [os.pread(file, size, offset) for offset, size in _runs(chunks)]


def _runs(chunks: Sequence[ChunkRef]) -> list[tuple[int, int]]:
    """Return the offset and size of each run of adjacent chunks."""
    found: list[tuple[int, int]] = []
    for chunk in chunks:
        if found and sum(found[-1]) == chunk.offset:
            found[-1] = (found[-1][0], found[-1][1] + chunk.size)
        else:
            found.append((chunk.offset, chunk.size))
    return found
