"""Where chunks come from: older versions, and what is being put together. Few of these files are open at a time."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.chunks.streamed_file import Place
from hai_backend.workspaces.files import Files

OPEN = 16
_SOME = 500  # in one question
_EQUAL = 8  # places of one chunk that are looked at
_OWN = "SELECT 1 FROM chunks WHERE digest = ? AND file = ? AND place = ? AND size = ? AND have = 1"
_OTHERS = """SELECT digest, file, place, size FROM chunks
    WHERE digest IN ({marks}) AND have = 1 LIMIT {most}"""


def part_of(file: bytes) -> str:
    """The name of an incomplete file in `incoming`."""
    return f"{file.hex()}.part"


class Source(NamedTuple):
    """Bytes of a file that is here, by its digest."""

    file: bytes
    begin: int
    size: int


class Sources:
    """Of one push. One thread at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._here: dict[bytes, bool] = {}
        self._open: dict[bytes, int] = {}  # the one that was asked for last is the last

    def has(self, file: bytes) -> bool:
        """Whether there is a file of this digest, or a part of one."""
        if file not in self._here:
            self._here[file] = self._opened(file) is not None
        return self._here[file]

    def forget(self, file: bytes) -> None:
        """It is there from now on, or another one."""
        self._here.pop(file, None)
        if (found := self._open.pop(file, None)) is not None:
            os.close(found)

    def open(self, file: bytes) -> int:
        """It stays open until OPEN others were asked for. Raises Conflict when it has gone since."""
        found = self._opened(file)
        if found is None:
            raise Conflict(
                f"{file.hex()} changed while it was read; push again", reason="CONTENTS_MISSING"
            )
        return found

    def _opened(self, file: bytes) -> int | None:
        found = self._open.pop(file, None)
        if found is None:
            found = self._found(file)
        if found is not None:
            self._open[file] = found
            if len(self._open) > OPEN:
                os.close(self._open.pop(next(iter(self._open))))
        return found

    def _found(self, file: bytes) -> int | None:
        with suppress(FileNotFoundError):
            return self._files.incoming.open(part_of(file))
        return self._files.find(file)

    def choose(self, told: Sequence[Place], *, own: bool) -> dict[Place, Source]:
        """Where chunks are to be had; neighbours in one file, if that can be. `own`: perhaps in the file itself."""
        here = self._known(list({each.digest for each in told}))
        found: dict[Place, Source] = {}
        last = b""
        for each in told:
            if sources := self._places_of(each, here[each.digest], own):
                best = min(sources, key=lambda source: source.file != last)
                found[each], last = best, best.file
        return found

    def _places_of(self, wanted: Place, here: Sequence[Source], own: bool) -> list[Source]:
        """The file itself, where it has the chunk; else some that have it."""
        row = (wanted.digest, wanted.file, wanted.place, wanted.size)
        if own and self._files.index.rows(_OWN, row):
            return [Source(wanted.file, wanted.place, wanted.size)]
        return [s for s in here if s.size == wanted.size and self.has(s.file)]

    def _known(self, digests: Sequence[bytes]) -> Mapping[bytes, list[Source]]:
        """Some places of each chunk; of many equal ones not all are read."""
        found = defaultdict[bytes, list[Source]](list)
        for first in range(0, len(digests), _SOME):
            some = digests[first : first + _SOME]
            for digest, *source in self._rows(some):
                found[digest].append(Source(*source))
        return found

    def _rows(self, digests: Sequence[bytes]) -> list[Any]:
        index, most = self._files.index, _EQUAL * len(digests)
        query = _OTHERS.format(marks=",".join("?" * len(digests)), most=most)
        rows = index.rows(query, digests)
        if len(rows) < most:
            return rows
        each = _OTHERS.format(marks="?", most=_EQUAL)
        return [row for digest in digests for row in index.rows(each, (digest,))]

    def close(self) -> None:
        """Done with all of them."""
        for found in self._open.values():
            os.close(found)
        self._open.clear()
