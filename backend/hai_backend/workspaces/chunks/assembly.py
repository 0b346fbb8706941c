"""A large file is put together while its recipe is told: in order, in one pass, and hashed on its way to the disk.

What is here comes from older versions or from a push that broke, the rest from the client. As far as there are no gaps
the file grows with each message; what came in another order is looked at when all is here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.chunks.sources import Source, Sources, part_of
from hai_backend.workspaces.chunks.streamed_file import Place, StreamedFile
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.storage.direct_io import BLOCK_BYTES, Reader

_AT_ONCE = 64 << 20  # while less is here it is not begun: what follows is read ahead
_REST = """SELECT file, place, digest, size FROM chunks
    WHERE file = ? AND place >= ? AND have != 2 ORDER BY place"""
_CUT_OFF = "UPDATE chunks SET have = 0 WHERE file = ? AND place + size > ?"


class Assembly:
    """One file. Another push may take it over: then every verb but `rest` raises Conflict."""

    def __init__(self, files: Files, file: bytes, sources: Sources, *, begun: bool) -> None:
        self._files = files
        self._begun = begun  # some of it may be here
        self._file = file
        self._sources = sources
        self._here = deque[tuple[Place, Source]]()  # in order, not in the file yet
        self._here_bytes = 0
        self._asked = set[bytes]()
        self._reader = Reader()
        self._lock = threading.Lock()
        self._lost = False
        self.running = StreamedFile(partial(files.incoming.create, part_of(file)))

    def tell(self, told: Sequence[Place]) -> list[bytes]:
        """The next chunks; answers the digests of those that are nowhere here and were not asked for yet.

        Raises OSError.
        """
        with self.held():
            here = self._sources.choose(told, own=self._begun)
            self._here += here.items()
            self._here_bytes += sum(each.size for each in here)
            if self._here_bytes >= _AT_ONCE:
                self._advance()
            lacking = {each.digest: None for each in told if each not in here}
            missing = [digest for digest in lacking if digest not in self._asked]
            self._asked.update(missing)
            return missing

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody takes it over meanwhile. Raises Conflict when somebody has."""
        with self._lock:
            if self._lost:
                problem = f"another push brings {self._file.hex()} now; push again"
                raise Conflict(problem, reason="CONTENTS_MISSING")
            yield

    def take(self, wanted: Sequence[Place], contents: Mapping[bytes, memoryview]) -> list[Place]:
        """Chunks that have arrived, by place; answers what is in the file since. What is hashed is never written again.

        Raises OSError.
        """
        with self.held():
            self._asked.difference_update(each.digest for each in wanted)
            self._advance()
            open_places = [each for each in wanted if each.place >= self.running.place]
            later = self.running.take(open_places, contents)
            parts = ((each.place, contents[each.digest]) for each in later)
            self._files.incoming.write_at(part_of(self._file), parts)
            return later + self.running.written()

    def _advance(self) -> None:
        """As far as what is here goes on where the file ends."""
        self._here_bytes = 0
        parts = list(runs(self._next()))
        contents = self._reader.read(self._to_read(source for _, source in parts))
        for (own, source), content in zip(parts, contents, strict=True):
            if len(content) < source.size:
                self._forget(source, source.begin + len(content))
            if own:
                self.running.skip(content)
            else:
                self.running.add(content)

    def _forget(self, source: Source, end: int) -> None:
        """A file ends before its chunks do: something has cut it off, as a loss of power may."""
        with self._files.index.transaction() as db:
            db.execute(_CUT_OFF, (source.file, end))
        problem = f"{source.file.hex()} has become shorter; push again, and what it lacks travels"
        raise Conflict(problem, reason="CONTENTS_MISSING")

    def _next(self) -> Iterator[tuple[bool, Source]]:
        """What goes on where the file ends, and whether it is there already."""
        end = self.running.place
        while self._here and self._here[0][0].place <= end:
            place, source = self._here.popleft()
            if place.place == end:
                yield source.file == place.file and source.begin == place.place, source
                end += place.size

    def _to_read(self, sources: Iterable[Source]) -> Iterator[tuple[int, int, int]]:
        for file, begin, size in sources:
            yield self._sources.open(file), begin, size

    def end(self) -> None:
        """All that will come has come; to be called while it is held. Raises OSError."""
        rows = self._files.index.rows(_REST, (self._file, self.running.place))
        self._here = deque(self._sources.choose([Place(*row) for row in rows], own=True).items())
        self._advance()
        self._finish()

    def rest(self) -> None:
        """What has arrived is in the file, and no memory is held; more may come. Raises OSError."""
        with self._lock:
            if not self._lost:
                self._finish()

    def _finish(self) -> None:
        self._reader = Reader()
        self.running.finish()

    def stop(self) -> None:
        """Somebody else goes on with the file."""
        with self._lock:
            self._lost, self._reader = True, Reader()
            self.running.drop()


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
