"""Finds stored chunks in older versions and in incomplete files. Only a few of these files are open at once."""

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
_MAX_CANDIDATES = 8  # of one chunk
_IN_OWN_FILE = (
    "SELECT 1 FROM chunks WHERE digest = ? AND file = ? AND place = ? AND size = ? AND have = 1"
)
_STORED = """SELECT digest, file, place, size FROM chunks
    WHERE digest IN ({marks}) AND have = 1 LIMIT {limit}"""


def partial_name(file: bytes) -> str:
    """Return the name in `incoming` of an incomplete file."""
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
        """Return whether a file of this digest, or a part of one, is stored."""
        if file not in self._exists:
            self._exists[file] = self._find_open(file) is not None
        return self._exists[file]

    def invalidate(self, file: bytes) -> None:
        """Forget the cached state of a file that was created or replaced."""
        self._exists.pop(file, None)
        if (descriptor := self._open.pop(file, None)) is not None:
            os.close(descriptor)

    def open(self, file: bytes) -> int:
        """Return an open file, which stays open until MAX_OPEN others were used. Raise Conflict if it was deleted."""
        descriptor = self._find_open(file)
        if descriptor is None:
            raise Conflict(
                f"{file.hex()} changed while it was read; push again", reason="CONTENTS_MISSING"
            )
        return descriptor

    def _find_open(self, file: bytes) -> int | None:
        descriptor = self._open.pop(file, None)
        if descriptor is None:
            descriptor = self._open_file(file)
        if descriptor is not None:
            self._open[file] = descriptor
            if len(self._open) > MAX_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
        return descriptor

    def _open_file(self, file: bytes) -> int | None:
        with suppress(FileNotFoundError):
            return self._files.incoming.open(partial_name(file))
        return self._files.find_content(file)

    def locate(
        self, positions: Sequence[ChunkPosition], *, include_own: bool
    ) -> dict[ChunkPosition, Source]:
        """Map chunks to stored ranges, preferably of one file. With `include_own`, search the file itself, too."""
        stored = self._find_ranges(list({position.digest for position in positions}))
        located: dict[ChunkPosition, Source] = {}
        last = b""
        for position in positions:
            if sources := self._list_candidates(position, stored[position.digest], include_own):
                best = min(sources, key=lambda source: source.file != last)
                located[position], last = best, best.file
        return located

    def _list_candidates(
        self, position: ChunkPosition, stored: Sequence[Source], include_own: bool
    ) -> list[Source]:
        """Return the range in the file itself if the file has the chunk, else some ranges of other files."""
        row = (position.digest, position.file, position.offset, position.size)
        if include_own and self._files.index.fetch_rows(_IN_OWN_FILE, row):
            return [Source(position.file, position.offset, position.size)]
        return [s for s in stored if s.size == position.size and self.has(s.file)]

    def _find_ranges(self, digests: Sequence[bytes]) -> Mapping[bytes, list[Source]]:
        """Return stored ranges of each chunk; only some if there are many."""
        sources = defaultdict[bytes, list[Source]](list)
        for first in range(0, len(digests), _BATCH):
            batch = digests[first : first + _BATCH]
            for digest, *source in self._fetch_ranges(batch):
                sources[digest].append(Source(*source))
        return sources

    def _fetch_ranges(self, digests: Sequence[bytes]) -> list[Any]:
        index, limit = self._files.index, _MAX_CANDIDATES * len(digests)
        query = _STORED.format(marks=",".join("?" * len(digests)), limit=limit)
        rows = index.fetch_rows(query, digests)
        if len(rows) < limit:
            return rows
        query = _STORED.format(marks="?", limit=_MAX_CANDIDATES)
        return [row for digest in digests for row in index.fetch_rows(query, (digest,))]

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
