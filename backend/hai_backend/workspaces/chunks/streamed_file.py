"""A large file that arrives from its beginning, as in a first push: hashed on its way to the disk, not read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from blake3 import blake3

from hai_backend.workspaces.storage.direct_io import DirectWriter


class ChunkPosition(NamedTuple):
    """Where a chunk belongs in a file."""

    file: bytes
    offset: int
    digest: bytes
    size: int


class StreamedFile:
    """A file with a single writer, for the part whose chunks arrive in sequence. `create` opens the file."""

    def __init__(self, create: Callable[[], int]) -> None:
        self._create = create
        self._writer: DirectWriter | None = None
        self._queued: deque[ChunkPosition] = deque()  # not written yet
        self._written = 0
        self._hash = blake3()
        self.offset = 0

    def write_next(
        self, positions: Sequence[ChunkPosition], contents: Mapping[bytes, memoryview]
    ) -> list[ChunkPosition]:
        """Writes those of the ordered positions that come next. Returns the remaining ones. Raises OSError."""
        for index, position in enumerate(positions):
            if position.offset != self.offset:
                return list(positions[index:])
            self.add(contents[position.digest])
            self._queued.append(position)
        return []

    def add(self, content: memoryview) -> None:
        """Appends these bytes. Raises OSError, also for bytes that were added earlier."""
        if self._writer is None:
            self._writer = DirectWriter(self._create(), self.offset)
        self._writer.add(content)
        self._written = self._writer.written
        self._hash.update(content)
        self.offset += len(content)

    def skip(self, content: memoryview) -> None:
        """Hashes the next bytes, which are in the file already. Raises OSError."""
        self.finish()
        self._hash.update(content)
        self.offset += len(content)

    def written(self) -> list[ChunkPosition]:
        """Returns the positions that were written since the last call."""
        found = []
        while self._queued and self._queued[0].offset + self._queued[0].size <= self._written:
            found.append(self._queued.popleft())
        return found

    def finish(self) -> None:
        """Writes all queued bytes to the file; more may arrive later."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with closing(writer):
                writer.finish()
                self._written = writer.written

    def drop(self) -> None:
        """Discards the queued bytes and writes nothing more."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def is_complete(self, digest: bytes, size: int) -> bool:
        """Tells whether the complete file was hashed and matches its digest."""
        return self.offset == size and self._hash.digest() == digest
