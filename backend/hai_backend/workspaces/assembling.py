"""Puts a large file together from chunks that are here: in one pass, in order, hashed on its way to the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from hai_backend.workspaces.files import Files
from hai_backend.workspaces.running import Running
from hai_backend.workspaces.straight import BLOCK_BYTES, read_ahead

_PARTS = """SELECT n.digest, n.place, n.size, CASE n.have WHEN 1 THEN n.file ELSE o.file END,
      CASE n.have WHEN 1 THEN n.place ELSE o.place END
    FROM chunks n LEFT JOIN chunks o
      ON n.have = 0 AND o.digest = n.digest AND o.have = 1 AND o.file != n.file AND o.size = n.size
    WHERE n.file = ? GROUP BY n.place ORDER BY n.place"""


class _Part(NamedTuple):
    """A chunk, and where its bytes lie: in the file itself, in another one, or nowhere."""

    digest: bytes
    place: int
    size: int
    source: bytes | None
    begin: int | None


def missing(files: Files, file: bytes) -> list[bytes]:
    """Digests of chunks that are nowhere here."""
    parts = _parts(files, file)
    with _Sources(files, file, "") as sources:
        here = {source for source in {part.source for part in parts} if sources.has(source)}
    return list(dict.fromkeys(part.digest for part in parts if part.source not in here))


def assemble(files: Files, file: bytes, name: str) -> Running | None:
    """Write a file whose chunks are here to `name`; None: one is not. Raises OSError."""
    parts = _parts(files, file)
    with _Sources(files, file, name) as sources:
        if not all(sources.has(source) for source in {part.source for part in parts}):
            return None
        running = Running(partial(files.incoming.create, name))
        try:
            for content in read_ahead(sources.runs(parts)):
                running.add(content)
        finally:
            running.finish()
    with files.index.transaction() as db:
        db.execute("UPDATE chunks SET have = 1 WHERE file = ?", (file,))
    return running


def _parts(files: Files, file: bytes) -> list[_Part]:
    return [_Part(*row) for row in files.index.rows(_PARTS, (file,))]


class _Sources(ExitStack):
    """Files that chunks come from, open."""

    def __init__(self, files: Files, file: bytes, name: str) -> None:
        super().__init__()
        self._files = files
        self._open: dict[bytes | None, int | None] = {None: None}
        if name:
            self._keep(file, files.incoming.open(name))
        else:
            self._open[file] = -1  # its own chunks are where they belong

    def has(self, source: bytes | None) -> bool:
        """Whether there is such a file, with the contents that it should have."""
        if source not in self._open:
            assert source is not None
            self._keep(source, self._files.find(source))
        return self._open[source] is not None

    def _keep(self, source: bytes, file: int | None) -> None:
        self._open[source] = file
        if file is not None:
            self.callback(os.close, file)

    def runs(self, parts: Iterable[_Part]) -> Iterator[tuple[int, int, int]]:
        """What is to be read, where: neighbours at once."""
        places = ((part.source, part.begin or 0, part.size) for part in parts)
        for source, begin, size in runs(places):
            file = self._open[source]
            assert file is not None
            yield file, begin, size


def runs(
    parts: Iterable[tuple[bytes | None, int, int]],
) -> Iterator[tuple[bytes | None, int, int]]:
    """Source, begin and size of what lies one behind the other in one source, up to a block."""
    source, begin, size = None, 0, 0
    for at, first, more in parts:
        if (at, first) != (source, begin + size) or size + more > BLOCK_BYTES:
            if size:
                yield source, begin, size
            source, begin, size = at, first, 0
        size += more
    if size:
        yield source, begin, size
