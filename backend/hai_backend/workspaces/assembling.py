"""A large file is put together while its recipe is told: in order, in one pass, and hashed on its way to the disk.

What is here comes from older versions or from a push that broke, the rest from the client. As far as there are no gaps
the file grows with each message; what came in another order is looked at when all is here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hai_backend.workspaces.files import Files
from hai_backend.workspaces.running import Place, Running
from hai_backend.workspaces.sources import Sources, part_of
from hai_backend.workspaces.straight import BLOCK_BYTES, Reader

_SOME = 500  # in one question
_AT_ONCE = 64 << 20  # while less is here it is not begun: what follows is read ahead
_REST = """SELECT file, place, digest, size FROM chunks
    WHERE file = ? AND place >= ? ORDER BY place"""


class Source(NamedTuple):
    """Bytes of a file that is here, by its digest."""

    file: bytes
    begin: int
    size: int


class Assembly:
    """One file."""

    def __init__(self, files: Files, file: bytes, sources: Sources) -> None:
        self._files = files
        self._file = file
        self._sources = sources
        self._here = deque[tuple[Place, Source]]()  # in order, not in the file yet
        self._here_bytes = 0
        self._asked = set[bytes]()
        self._reader = Reader()
        self.running = Running(partial(files.incoming.create, part_of(file)))

    def tell(self, told: Sequence[Place]) -> list[bytes]:
        """The next chunks; answers the digests of those that are nowhere here and were not asked for yet.

        Raises OSError.
        """
        here = self._choose(told)
        self._here += here.items()
        self._here_bytes += sum(each.size for each in here)
        if self._here_bytes >= _AT_ONCE:
            self._advance()
        lacking = {each.digest: None for each in told if each not in here}
        missing = [digest for digest in lacking if digest not in self._asked]
        self._asked.update(missing)
        return missing

    def _choose(self, told: Sequence[Place]) -> dict[Place, Source]:
        """Where chunks are to be had; neighbours in one file, if that can be."""
        known = self._known({each.digest for each in told})
        found: dict[Place, Source] = {}
        last = b""
        for each in told:
            sources = [
                s for s in known[each.digest] if s.size == each.size and self._sources.has(s.file)
            ]
            if sources:
                own = Source(each.file, each.place, each.size)
                best = own if own in sources else min(sources, key=lambda s: s.file != last)
                found[each], last = best, best.file
        return found

    def _known(self, digests: Iterable[bytes]) -> Mapping[bytes, list[Source]]:
        found, wanted = defaultdict[bytes, list[Source]](list), list(digests)
        for first in range(0, len(wanted), _SOME):
            some = wanted[first : first + _SOME]
            query = f"""SELECT digest, file, place, size FROM chunks
                WHERE have = 1 AND digest IN ({",".join("?" * len(some))})"""
            for digest, *source in self._files.index.rows(query, some):
                found[digest].append(Source(*source))
        return found

    def take(self, wanted: Sequence[Place], contents: Mapping[bytes, memoryview]) -> list[Place]:
        """Chunks that have arrived, by place; answers those that come later. What is hashed is never written again.

        Raises OSError.
        """
        self._asked.difference_update(each.digest for each in wanted)
        self._advance()
        open_places = [each for each in wanted if each.place >= self.running.place]
        return self.running.take(open_places, contents)

    def _advance(self) -> None:
        """As far as what is here goes on where the file ends."""
        self._here_bytes = 0
        parts = list(self._next())
        for (own, _), content in zip(
            runs(parts), self._reader.read(self._to_read(parts)), strict=True
        ):
            if own:
                self.running.skip(content)
            else:
                self.running.add(content)

    def _next(self) -> Iterator[tuple[bool, Source]]:
        """What goes on where the file ends, and whether it is there already."""
        end = self.running.place
        while self._here and self._here[0][0].place <= end:
            place, source = self._here.popleft()
            if place.place == end:
                yield source.file == place.file and source.begin == place.place, source
                end += place.size

    def _to_read(self, parts: Iterable[tuple[bool, Source]]) -> Iterator[tuple[int, int, int]]:
        for _, (source, begin, size) in runs(parts):
            yield self._sources.open(source), begin, size

    def end(self) -> None:
        """All that will come has come. Raises OSError."""
        rows = self._files.index.rows(_REST, (self._file, self.running.place))
        self._here = deque(self._choose([Place(*row) for row in rows]).items())
        self._advance()
        self.rest()

    def rest(self) -> None:
        """What has arrived is in the file, and no memory is held; more may come. Raises OSError."""
        self._reader = Reader()
        self.running.finish()


def runs(parts: Iterable[tuple[bool, Source]]) -> Iterator[tuple[bool, Source]]:
    """What lies one behind the other in one file is one part, up to a block."""
    run: tuple[bool, Source] | None = None
    for own, source in parts:
        if run is not None:
            file, begin, size = run[1]
            if (own, source.file, source.begin) == (run[0], file, begin + size) and (
                size + source.size <= BLOCK_BYTES
            ):
                run = own, Source(file, begin, size + source.size)
                continue
            yield run
        run = own, source
    if run is not None:
        yield run
