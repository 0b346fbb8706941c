"""Reads what is to be sent: small files whole, large ones as a list of their chunks.

A file that changes while it is read is `Restless`: the push begins anew with what it is then.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from hai_sync.core.chunks import LARGEST, WHOLE_BYTES, Piece, cut, digest_of
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.errors import GONE, Restless
from hai_sync.file_fingerprint import Signature, signature
from hai_sync.hashing import digest_of_file, open_file, read_all
from hai_sync.remote.contents import BATCH_BYTES, CHUNKS_BYTES

_ENTRIES = 600  # links with paths and targets of 3000 bytes fit into a message of 4 MiB, too
_PIECES = 128  # of a recipe in one message: some 32 MB are on their way while the next are cut


@dataclass(frozen=True, slots=True)
class Large:
    """A file that travels in chunks."""

    path: str
    source: str
    entry: Entry
    seen: Signature


@dataclass(frozen=True, slots=True)
class Part:
    """Some chunks of it, one behind the other."""

    large: Large
    pieces: Sequence[Piece]


@dataclass(slots=True)
class Batch:
    """Some changes, with the contents of the small files among them."""

    entries: list[tuple[str, Entry | None]] = field(default_factory=list)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    large: dict[bytes, Large] = field(default_factory=dict)
    signatures: dict[str, Signature] = field(default_factory=dict)
    bytes: int = 0


def batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Groups of some megabytes. Large files stand alone."""
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
    """Read and hash a group; `seen`: files as they were scanned. What is gone by now is removed. Raises Restless."""
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
        except GONE:
            batch.entries.append(
                (change.path, None)
            )  # which the server takes also for what it never had
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
            entry = _as_read(entry, digest_of_file(file, before.st_size), before)
            batch.large[entry.digest] = Large(path, source, entry, signature(before))
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


def parts(root: Path, large: Large) -> Iterator[Part]:
    """A large file as its chunks, if it is as it was. Raises Restless."""
    with _opened(root, large) as file:
        pieces = (
            piece for piece, _ in cut(lambda block: os.readv(file, [block]), large.entry.size)
        )
        while some := list(islice(pieces, _PIECES)):
            if some[-1].offset + some[-1].size > large.entry.size:
                raise Restless(large.path)
            yield Part(large, some)


def chunk_groups(pieces: Sequence[Piece], wanted: set[bytes]) -> Iterator[list[Piece]]:
    """The chunks that are wanted, each once, in messages of one size."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
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


@contextmanager
def _opened(root: Path, large: Large) -> Iterator[int]:
    """Raises Restless unless the file is as it was, also at the end."""
    try:
        file = open_file(root, large.source)
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
        raise Restless(large.path, why, gone=isinstance(error, GONE)) from error
    try:
        yield file
        if signature(os.fstat(file)) != large.seen:
            raise Restless(large.path)
    finally:
        os.close(file)


def read_pieces(root: Path, large: Large, pieces: Sequence[Piece]) -> list[bytes]:
    """Their bytes, neighbours together, if the file is as it was. Raises Restless."""
    with _opened(root, large) as file:
        return [os.pread(file, size, offset) for offset, size in _runs(pieces)]


def _runs(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Offset and size of what lies in one."""
    found: list[tuple[int, int]] = []
    for piece in pieces:
        if found and sum(found[-1]) == piece.offset:
            found[-1] = (found[-1][0], found[-1][1] + piece.size)
        else:
            found.append((piece.offset, piece.size))
    return found
