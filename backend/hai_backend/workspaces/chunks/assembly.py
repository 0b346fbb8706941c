"""Assembles a large file from chunks while its recipe arrives, in one pass that also hashes the file.

Chunks come from older versions, from an interrupted push, or from the client. As long as there are no gaps, the file
grows with each message. Chunks that arrive out of order are hashed once all chunks are stored.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.chunks.sources import Source, Sources, partial_name
from hai_backend.workspaces.chunks.streamed_file import ChunkPosition, StreamedFile
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.storage.direct_io import BLOCK_BYTES, DirectReader

_BUFFER_BYTES = 64 << 20  # buffer this much before writing, so that sources are read ahead
_MISSING = """SELECT file, place, digest, size FROM chunks
    WHERE file = ? AND place >= ? AND have != 2 ORDER BY place"""
_MARK_ABSENT = "UPDATE chunks SET have = 0 WHERE file = ? AND place + size > ?"


class Assembly:
    """Assembles one file. If another push takes the file over, every method except `flush` raises Conflict."""

    def __init__(
        self, files: WorkspaceFiles, file: bytes, sources: Sources, *, resumed: bool
    ) -> None:
        self._files = files
        self._resumed = resumed  # a partial file may exist
        self._file = file
        self._sources = sources
        self._available = deque[tuple[ChunkPosition, Source]]()  # in order, not written yet
        self._available_bytes = 0
        self._requested = set[bytes]()
        self._reader = DirectReader()
        self._lock = threading.Lock()
        self._is_taken_over = False
        self.stream = StreamedFile(partial(files.incoming.create, partial_name(file)))

    def add_chunks(self, positions: Sequence[ChunkPosition]) -> list[bytes]:
        """Add the next chunks of the recipe. Return the digests that are neither stored nor already requested.

        Raise OSError.
        """
        with self.locked():
            available = self._sources.locate(positions, include_own=self._resumed)
            self._available += available.items()
            self._available_bytes += sum(position.size for position in available)
            if self._available_bytes >= _BUFFER_BYTES:
                self._append_available()
            absent = {position.digest: None for position in positions if position not in available}
            missing = [digest for digest in absent if digest not in self._requested]
            self._requested.update(missing)
            return missing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other pushes from taking the file over. Raise Conflict if one already has."""
        with self._lock:
            if self._is_taken_over:
                problem = f"another push is assembling {self._file.hex()} now; push again"
                raise Conflict(problem, reason="CONTENTS_MISSING")
            yield

    def write(
        self, positions: Sequence[ChunkPosition], contents: Mapping[bytes, memoryview]
    ) -> list[ChunkPosition]:
        """Write chunks from the client, in order of offset. Return the positions that are now in the file.

        Bytes that are hashed are never written again. Raise OSError.
        """
        with self.locked():
            self._requested.difference_update(position.digest for position in positions)
            self._append_available()
            unwritten = [p for p in positions if p.offset >= self.stream.offset]
            out_of_order = self.stream.write_next(unwritten, contents)
            parts = ((position.offset, contents[position.digest]) for position in out_of_order)
            self._files.incoming.write_at(partial_name(self._file), parts)
            return out_of_order + self.stream.take_written()

    def _append_available(self) -> None:
        """Append the available chunks that continue the file where it ends."""
        self._available_bytes = 0
        parts = list(merge_adjacent(self._next_sources()))
        contents = self._reader.read(self._ranges(source for _, source in parts))
        for (is_written, source), content in zip(parts, contents, strict=True):
            if len(content) < source.size:
                self._discard_truncated(source, source.offset + len(content))
            if is_written:
                self.stream.skip(content)
            else:
                self.stream.add(content)

    def _discard_truncated(self, source: Source, end: int) -> None:
        """Forget the chunks after the end of a file, which may be shorter after a power loss. Raise Conflict."""
        with self._files.index.transaction() as db:
            db.execute(_MARK_ABSENT, (source.file, end))
        problem = f"{source.file.hex()} has become shorter; push again, and only the missing chunks are sent"
        raise Conflict(problem, reason="CONTENTS_MISSING")

    def _next_sources(self) -> Iterator[tuple[bool, Source]]:
        """Yield the sources that continue the file, each with whether the file itself already has these bytes."""
        end = self.stream.offset
        while self._available and self._available[0][0].offset <= end:
            position, source = self._available.popleft()
            if position.offset == end:
                yield source.file == position.file and source.offset == position.offset, source
                end += position.size

    def _ranges(self, sources: Iterable[Source]) -> Iterator[tuple[int, int, int]]:
        for file, offset, size in sources:
            yield self._sources.open(file), offset, size

    def finish_file(self) -> None:
        """Complete the file from stored chunks, after the last one. Call this inside `locked`. Raise OSError."""
        rows = self._files.index.fetch_rows(_MISSING, (self._file, self.stream.offset))
        self._available = deque(
            self._sources.locate([ChunkPosition(*row) for row in rows], include_own=True).items()
        )
        self._append_available()
        self._write_buffers()

    def flush(self) -> None:
        """Write everything that has arrived, and free the buffers. More chunks may arrive later. Raise OSError."""
        with self._lock:
            if not self._is_taken_over:
                self._write_buffers()

    def _write_buffers(self) -> None:
        self._reader = DirectReader()
        self.stream.finish()

    def abandon(self) -> None:
        """Write nothing more, because another push takes the file over."""
        with self._lock:
            self._is_taken_over, self._reader = True, DirectReader()
            self.stream.drop()


def merge_adjacent(parts: Iterable[tuple[bool, Source]]) -> Iterator[tuple[bool, Source]]:
    """Merge adjacent ranges of one file into ranges of at most a block."""
    merged: tuple[bool, Source] | None = None
    for is_written, source in parts:
        if merged is not None:
            file, offset, size = merged[1]
            if (is_written, source.file, source.offset) == (merged[0], file, offset + size) and (
                size + source.size <= BLOCK_BYTES
            ):
                merged = is_written, Source(file, offset, size + source.size)
                continue
            yield merged
        merged = is_written, source
    if merged is not None:
        yield merged
