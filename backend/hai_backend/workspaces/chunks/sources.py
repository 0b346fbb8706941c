"""Finds stored chunks in older versions and in files that are being assembled. Few of these files are open at once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.chunks.streamed_file import ChunkPosition
from hai_backend.workspaces.files import WorkspaceFiles

MAX_OPEN = 16
_BATCH = 500  # digests per query
_MAX_CANDIDATES = 8  # candidates that are considered for one chunk
_IN_PLACE = (
    "SELECT 1 FROM chunks WHERE digest = ? AND file = ? AND place = ? AND size = ? AND have = 1"
)
_STORED = """SELECT digest, file, place, size FROM chunks
    WHERE digest IN ({marks}) AND have = 1 LIMIT {limit}"""


def part_of(file: bytes) -> str:
    """Returns the name of an incomplete file in `incoming`."""
    return f"{file.hex()}.part"


class Source(NamedTuple):
    """A range of a stored file, which is named by its digest."""

    file: bytes
    offset: int
    size: int


class Sources:
    """The chunk sources of one push. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files
        self._exists: dict[bytes, bool] = {}
        self._open: dict[bytes, int] = {}  # in order of use

    def has(self, file: bytes) -> bool:
        """Tells whether a file of this digest, or a part of one, is stored."""
        if file not in self._exists:
            self._exists[file] = self._opened(file) is not None
        return self._exists[file]

    def invalidate(self, file: bytes) -> None:
        """Drops what is cached about a file that was created or replaced."""
        self._exists.pop(file, None)
        if (found := self._open.pop(file, None)) is not None:
            os.close(found)

    def open(self, file: bytes) -> int:
        """Returns the open file; it stays open until MAX_OPEN others were used. Raises Conflict when it was deleted."""
        found = self._opened(file)
        if found is None:
            raise Conflict(
                f"{file.hex()} changed while it was read; push again", reason="CONTENTS_MISSING"
            )
        return found

    def _opened(self, file: bytes) -> int | None:
        found = self._open.pop(file, None)
        if found is None:
            found = self._find(file)
        if found is not None:
            self._open[file] = found
            if len(self._open) > MAX_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
        return found

    def _find(self, file: bytes) -> int | None:
        with suppress(FileNotFoundError):
            return self._files.incoming.open(part_of(file))
        return self._files.find(file)

    def locate(
        self, positions: Sequence[ChunkPosition], *, in_place: bool
    ) -> dict[ChunkPosition, Source]:
        """Maps chunks to stored ranges, preferably adjacent ones. `in_place`: the file itself may have them."""
        stored = self._stored(list({position.digest for position in positions}))
        found: dict[ChunkPosition, Source] = {}
        last = b""
        for position in positions:
            if sources := self._candidates(position, stored[position.digest], in_place):
                best = min(sources, key=lambda source: source.file != last)
                found[position], last = best, best.file
        return found

    def _candidates(
        self, position: ChunkPosition, stored: Sequence[Source], in_place: bool
    ) -> list[Source]:
        """Returns the range in the file itself if it has the chunk, else some other ranges."""
        row = (position.digest, position.file, position.offset, position.size)
        if in_place and self._files.index.rows(_IN_PLACE, row):
            return [Source(position.file, position.offset, position.size)]
        return [s for s in stored if s.size == position.size and self.has(s.file)]

    def _stored(self, digests: Sequence[bytes]) -> Mapping[bytes, list[Source]]:
        """Returns some stored ranges of each chunk; not all when there are many."""
        found = defaultdict[bytes, list[Source]](list)
        for first in range(0, len(digests), _BATCH):
            batch = digests[first : first + _BATCH]
            for digest, *source in self._rows(batch):
                found[digest].append(Source(*source))
        return found

    def _rows(self, digests: Sequence[bytes]) -> list[Any]:
        index, limit = self._files.index, _MAX_CANDIDATES * len(digests)
        query = _STORED.format(marks=",".join("?" * len(digests)), limit=limit)
        rows = index.rows(query, digests)
        if len(rows) < limit:
            return rows
        query = _STORED.format(marks="?", limit=_MAX_CANDIDATES)
        return [row for digest in digests for row in index.rows(query, (digest,))]

    def close(self) -> None:
        for found in self._open.values():
            os.close(found)
        self._open.clear()
