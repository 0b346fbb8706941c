"""Reads what is to be sent: small files whole, large ones as a list of their chunks.

A file that changes while it is read is `Restless`: the push begins anew with what it is then.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from blake3 import blake3

from hai_sync.core.chunks import LARGEST, WHOLE_BYTES, Piece, cut, digest_of
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.errors import Restless
from hai_sync.hashing import open_file, read_all
from hai_sync.remote.contents import BATCH_BYTES, CHUNKS_BYTES
from hai_sync.signatures import Signature, signature

_ENTRIES = 400
_hashing = ThreadPoolExecutor(1)


@dataclass(slots=True)
class Large:
    """A file in chunks. Digests and sizes are packed: a file of 100 GB has more than a million."""

    path: str
    source: str
    entry: Entry
    seen: Signature
    digests: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)

    def pieces(self) -> Iterator[Piece]:
        """In order."""
        offset = 0
        for number, size in enumerate(self.sizes):
            yield Piece(bytes(self.digests[number * 32 : number * 32 + 32]), offset, size)
            offset += size


@dataclass(slots=True)
class Batch:
    """Some changes, with the contents of the small files among them."""

    entries: list[tuple[str, Entry | None]] = field(default_factory=list)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    large: dict[bytes, Large] = field(default_factory=dict)
    signatures: dict[str, Signature] = field(default_factory=dict)
    bytes: int = 0


def batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Groups of about a megabyte. Large files stand alone."""
    group: list[Change] = []
    size = 0
    for change in changes:
        more = change.new.size if change.new is not None else 0
        if group and (size + more > BATCH_BYTES or len(group) >= _ENTRIES):
            yield group
            group, size = [], 0
        group.append(change)
        size += more
    if group:
        yield group


def load(
    root: Path,
    changes: Sequence[Change],
    sources: Mapping[str, str],
    seen: Mapping[str, Signature],
) -> Batch:
    """Read and hash a group; `seen`: files as they were scanned. Raises Restless."""
    batch = Batch()
    at = str(root)
    for change in changes:
        new = change.new
        if new is None or new.kind is not Kind.FILE:
            batch.entries.append((change.path, new))
            continue
        source = sources.get(change.path, change.path)
        try:
            if not _read_small(batch, at, change.path, source, new, seen.get(source)):
                _read(batch, at, change.path, source, new)
        except OSError as error:
            raise Restless(change.path, f"it cannot be read: {error.strerror}") from error
    return batch


def _read_small(
    batch: Batch, root: str, path: str, source: str, entry: Entry, seen: Signature | None
) -> bool:
    """A small file that is as it was scanned, which one look after the reading tells; False: it is another case."""
    size = entry.size
    if seen is None or size > WHOLE_BYTES:
        return False
    file = open_file(root, source)
    try:
        data = os.read(file, size + 1)
        if signature(os.fstat(file)) != seen or len(data) != size:
            return False
    finally:
        os.close(file)
    digest = digest_of(data)
    batch.contents[digest] = data
    batch.bytes += size
    entry = Entry(entry.kind, digest, size, entry.executable, "", entry.mtime_ns)
    batch.entries.append((path, entry))
    batch.signatures[path] = seen
    return True


def _read(batch: Batch, root: str, path: str, source: str, entry: Entry) -> None:
    file = open_file(root, source)
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise Restless(path, "it is no regular file any more")
        if before.st_size > WHOLE_BYTES:
            large = _cut(file, path, source, entry, signature(before))
            entry = large.entry = _as_read(entry, large.entry.digest, before)
            batch.large[entry.digest] = large
        else:
            data = read_all(file, before.st_size)
            digest = digest_of(data)
            entry = _as_read(entry, digest, before)
            batch.contents[digest] = data
            if len(data) != before.st_size:
                raise Restless(path)
        seen = signature(os.fstat(file))
    finally:
        os.close(file)
    if seen != signature(before):
        raise Restless(path)
    batch.bytes += entry.size
    batch.entries.append((path, entry))
    batch.signatures[path] = seen


def _as_read(entry: Entry, digest: bytes, status: os.stat_result) -> Entry:
    executable = bool(status.st_mode & 0o100)
    mtime_ns = max(0, status.st_mtime_ns)
    return Entry(entry.kind, digest, status.st_size, executable, "", mtime_ns)


def _cut(file: int, path: str, source: str, entry: Entry, seen: Signature) -> Large:
    """Chunks and the whole file's digest, from one reading; the latter on another core."""
    large = Large(path, source, entry, seen)
    whole = blake3()

    def read(block: memoryview) -> int:
        if waiting:
            waiting.pop().result()  # its memory may be written again from now on
        size = os.readv(file, [block])
        waiting.append(_hashing.submit(whole.update, block[:size]))
        return size

    waiting: list[Future[object]] = []
    for piece, _ in cut(read, os.fstat(file).st_size):
        large.digests += piece.digest
        large.sizes.append(piece.size)
    for last in waiting:
        last.result()
    large.entry = replace(entry, digest=whole.digest())
    return large


def chunk_groups(large: Large, wanted: set[bytes]) -> Iterator[list[Piece]]:
    """The chunks that are wanted, each once, in messages of one size."""
    group: list[Piece] = []
    size = 0
    for piece in large.pieces():
        if piece.digest not in wanted:
            continue
        wanted.discard(piece.digest)
        group.append(piece)
        size += piece.size
        if size >= CHUNKS_BYTES - LARGEST:
            yield group
            group, size = [], 0
    if group:
        yield group


def read_pieces(root: Path, large: Large, pieces: Sequence[Piece]) -> list[bytes]:
    """Their bytes, neighbours together, if the file is as it was. Raises Restless."""
    try:
        file = open_file(root, large.source)
    except OSError as error:
        raise Restless(large.path, f"it cannot be read: {error.strerror}") from error
    try:
        data = [os.pread(file, size, offset) for offset, size in _runs(pieces)]
        if signature(os.fstat(file)) != large.seen:
            raise Restless(large.path)
    finally:
        os.close(file)
    return data


def _runs(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Offset and size of what lies in one."""
    found: list[tuple[int, int]] = []
    for piece in pieces:
        if found and sum(found[-1]) == piece.offset:
            found[-1] = (found[-1][0], found[-1][1] + piece.size)
        else:
            found.append((piece.offset, piece.size))
    return found
