"""Reads files for messages of about a mebibyte: small files together, large ones in pieces."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import zstandard

from hai_backend.domain.errors import Conflict, Invalid, NotFound, Violation
from hai_backend.domain.workspace import EntryKind
from hai_backend.workspaces.contents import closing_descriptor
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.prefetch import FileSource, prefetch_small_files
from hai_backend.workspaces.storage.workers import StorageSpeed

MESSAGE_BYTES = 1 << 20
_PROBE_BYTES = 1 << 16
_MAX_COMPRESSION_RATIO = 0.9  # data that compress worse than that are sent uncompressed


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of the file at `index` in the requested list."""

    index: int
    offset: int
    size: int
    last: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """The parts of one message, and their concatenated data."""

    parts: tuple[FilePart, ...]
    data: bytes
    compressed: bool


def read_files(
    source: FileSource, paths: Sequence[str], offsets: Sequence[int], *, compress: bool
) -> Generator[Bundle]:
    """Yield the files in the requested order.

    Raise NotFound or Invalid; raise Conflict CONTENT_LOST after the files before the lost one.
    """
    parts: list[FilePart] = []
    data: list[bytes] = []
    size, failure = 0, None
    try:
        for part, content in _parts(source, paths, offsets):
            if size + len(content) > MESSAGE_BYTES and parts:
                yield _bundle(parts, data, compress)
                parts, data, size = [], [], 0
            parts.append(part)
            data.append(content)
            size += len(content)
    except Conflict as error:
        failure = error
    if parts:
        yield _bundle(parts, data, compress)
    if failure is not None:
        raise failure


def _parts(
    source: FileSource, paths: Sequence[str], offsets: Sequence[int]
) -> Iterator[tuple[FilePart, bytes]]:
    with closing(prefetch_small_files(source, paths)) as prefetched:
        for index, (path, content) in enumerate(zip(paths, prefetched, strict=True)):
            offset = offsets[index] if index < len(offsets) else 0
            if content is not None and 0 <= offset <= len(content):
                yield FilePart(index, offset, len(content) - offset, True), content[offset:]
            else:
                yield from _read_parts(source, path, index, offset)


def _read_parts(
    source: FileSource, path: str, index: int, offset: int
) -> Iterator[tuple[FilePart, bytes]]:
    """Yield the parts of one file from an offset. Raise Invalid if the offset is after its end."""
    with source.open_tree() as folders:
        file = source.open(folders, path)
    assert file is not None
    with closing_descriptor(file):
        size = os.fstat(file).st_size
        if not 0 <= offset <= size:
            problem = f"{path} has {size} bytes, not {offset}"
            raise Invalid((Violation(f"offsets[{index}]", problem),))
        yield from _split(file, path, index, offset, size)


def _split(
    file: int, path: str, index: int, offset: int, size: int
) -> Iterator[tuple[FilePart, bytes]]:
    """Yield an open file in parts of at most one message. Raise Conflict CONTENT_LOST."""
    while True:
        part_size = min(MESSAGE_BYTES, size - offset)
        content = os.pread(file, part_size, offset) if part_size else b""
        if len(content) < part_size:
            raise content_lost_error(path)
        last = offset + part_size == size
        yield FilePart(index, offset, part_size, last), content
        offset += part_size
        if last:
            return


@dataclass(frozen=True, slots=True)
class RevisionFiles:
    """The files of a revision, as a FileSource."""

    files: WorkspaceFiles
    revision: int

    @property
    def storage_speed(self) -> StorageSpeed:
        return self.files.storage_speed

    def open_tree(self) -> Directories:
        return self.files.open_tree()

    def open(self, folders: Directories, path: str, max_bytes: int | None = None) -> int | None:
        """Open a file of the revision. Raise NotFound, or Conflict CONTENT_LOST."""
        entry = self.files.index.get_entry(path, self.revision)
        if entry is None or entry.kind is not EntryKind.FILE:
            raise NotFound(f"revision {self.revision} has no file {path[:200]!r}")
        if max_bytes is not None and entry.size > max_bytes:
            return None
        file = self.files.find_content(entry.digest, folders)
        if file is None:
            raise content_lost_error(path)
        return file


def content_lost_error(path: str, hint: str = "read the newest tree") -> Conflict:
    return Conflict(
        f"the content of {path} is lost: a program changed the file in place; {hint}",
        reason="CONTENT_LOST",
    )


def _bundle(parts: list[FilePart], data: list[bytes], compress: bool) -> Bundle:
    joined = b"".join(data)
    if compress and _is_compressible(joined):
        return Bundle(tuple(parts), zstandard.ZstdCompressor(level=1).compress(joined), True)
    return Bundle(tuple(parts), joined, False)


def _is_compressible(data: bytes) -> bool:
    if len(data) < 128:
        return False
    sample = data[:_PROBE_BYTES]
    compressed = zstandard.ZstdCompressor(level=1).compress(sample)
    return len(compressed) < _MAX_COMPRESSION_RATIO * len(sample)
