"""Contents of a revision, in messages of about a mebibyte: small files together, large ones in pieces."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import zstandard

from hai_backend.domain.errors import Conflict, Invalid, NotFound, Violation
from hai_backend.domain.workspace import EntryKind
from hai_backend.workspaces.contents import opened
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.prefetch import Source, small_files
from hai_backend.workspaces.storage.workers import Storage

MESSAGE_BYTES = 1 << 20
_PROBE_BYTES = 1 << 16
_WORTH = 0.9  # a sample that stays larger than that is sent as it is


@dataclass(frozen=True, slots=True)
class Part:
    """Of the file at `index` of the list that was asked for."""

    index: int
    offset: int
    size: int
    last: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """Some parts; their data one behind the other."""

    parts: tuple[Part, ...]
    data: bytes
    compressed: bool


def read(
    source: Source, paths: Sequence[str], offsets: Sequence[int], *, compress: bool
) -> Generator[Bundle]:
    """Files in the order asked. Raises NotFound, Invalid; Conflict CONTENT_LOST when all before that file is told."""
    parts: list[Part] = []
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
    source: Source, paths: Sequence[str], offsets: Sequence[int]
) -> Iterator[tuple[Part, bytes]]:
    with closing(small_files(source, paths)) as early:
        for index, (path, content) in enumerate(zip(paths, early, strict=True)):
            offset = offsets[index] if index < len(offsets) else 0
            if content is not None and 0 <= offset <= len(content):
                yield Part(index, offset, len(content) - offset, True), content[offset:]
            else:
                yield from _opened(source, path, index, offset)


def _opened(source: Source, path: str, index: int, offset: int) -> Iterator[tuple[Part, bytes]]:
    with source.folders() as folders:
        file = source.open(folders, path)
    assert file is not None
    with opened(file):
        size = os.fstat(file).st_size
        if not 0 <= offset <= size:
            problem = f"{path} has {size} bytes, not {offset}"
            raise Invalid((Violation(f"offsets[{index}]", problem),))
        yield from _pieces(file, path, index, offset, size)


def _pieces(
    file: int, path: str, index: int, offset: int, size: int
) -> Iterator[tuple[Part, bytes]]:
    while True:
        wanted = min(MESSAGE_BYTES, size - offset)
        content = os.pread(file, wanted, offset) if wanted else b""
        if len(content) < wanted:
            raise lost(path)
        last = offset + wanted == size
        yield Part(index, offset, wanted, last), content
        offset += wanted
        if last:
            return


@dataclass(frozen=True, slots=True)
class OfRevision:
    """Files of a revision."""

    files: Files
    revision: int

    @property
    def storage(self) -> Storage:
        """What is known of it."""
        return self.files.storage

    def folders(self) -> Directories:
        """The tree."""
        return self.files.folders()

    def open(self, folders: Directories, path: str, most: int | None = None) -> int | None:
        """One of them. Raises NotFound, or Conflict CONTENT_LOST."""
        entry = self.files.index.entry(path, self.revision)
        if entry is None or entry.kind is not EntryKind.FILE:
            raise NotFound(f"there is no file {path[:200]!r} in revision {self.revision}")
        if most is not None and entry.size > most:
            return None
        file = self.files.find(entry.digest, folders)
        if file is None:
            raise lost(path)
        return file


def lost(path: str, hint: str = "look at the newest tree") -> Conflict:
    """Its bytes are not on storage any more."""
    return Conflict(
        f"the content of {path} is gone: a program changed the file in place; {hint}",
        reason="CONTENT_LOST",
    )


def _bundle(parts: list[Part], data: list[bytes], compress: bool) -> Bundle:
    plain = b"".join(data)
    if compress and _is_worth_it(plain):
        return Bundle(tuple(parts), zstandard.ZstdCompressor(level=1).compress(plain), True)
    return Bundle(tuple(parts), plain, False)


def _is_worth_it(data: bytes) -> bool:
    if len(data) < 128:
        return False
    sample = data[:_PROBE_BYTES]
    return len(zstandard.ZstdCompressor(level=1).compress(sample)) < _WORTH * len(sample)
