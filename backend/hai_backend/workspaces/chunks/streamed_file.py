"""Writes and hashes a large file that arrives from its beginning, as in a first push, so that nobody reads it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from blake3 import blake3

from hai_backend.workspaces.storage.direct_io import DirectWriter


class ChunkPosition(NamedTuple):
    """The position of a chunk in a file."""

    file: bytes
    offset: int
    digest: bytes
    size: int


class StreamedFile:
    """A file with a single writer, for the chunks that arrive in sequence. `create` opens the file."""

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
        """Write the positions that continue the file. Return the others. `positions` are ordered. Raise OSError."""
        for index, position in enumerate(positions):
            if position.offset != self.offset:
                return list(positions[index:])
            self.add(contents[position.digest])
            self._queued.append(position)
        return []

    def add(self, content: memoryview) -> None:
        """Append bytes. An OSError may concern bytes that were added earlier."""
        if self._writer is None:
            self._writer = DirectWriter(self._create(), self.offset)
        self._writer.add(content)
        self._written = self._writer.written
        self._hash.update(content)
        self.offset += len(content)

    def skip(self, content: memoryview) -> None:
        """Hash the next bytes, which the file already contains. Raise OSError."""
        self.finish()
        self._hash.update(content)
        self.offset += len(content)

    def take_written(self) -> list[ChunkPosition]:
        """Return the positions that were written since the last call."""
        positions = []
        while self._queued and self._queued[0].offset + self._queued[0].size <= self._written:
            positions.append(self._queued.popleft())
        return positions

    def finish(self) -> None:
        """Write all queued bytes to the file. More bytes may follow later."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with closing(writer):
                writer.finish()
                self._written = writer.written

    def drop(self) -> None:
        """Discard the queued bytes and write nothing more."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def is_complete(self, digest: bytes, size: int) -> bool:
        """Return whether the complete file was hashed and matches its digest."""
        return self.offset == size and self._hash.digest() == digest
