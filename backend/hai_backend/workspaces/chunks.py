"""Large files that are put together from chunks: of this push, of one that broke, and of older versions.

A row of `chunks` says where in a file a chunk lies, and whether the file has it already. A file that is not complete
lies in `incoming` as `<digest>.part`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid, Violation
from hai_backend.domain.workspace import DIGEST_BYTES, Chunk
from hai_backend.workspaces.contents import copy_range, digest_of, opened, write_back
from hai_backend.workspaces.files import Files

CHUNK_BYTES = 2 << 20
RUN_BYTES = 16 << 20
_SOME = 500  # in one question
_SOURCES = """SELECT n.digest, n.place, n.size, o.file, o.place FROM chunks n JOIN chunks o
    ON o.digest = n.digest AND o.have = 1 AND o.file != n.file AND o.size = n.size
    WHERE n.file = ? AND n.have = 0 GROUP BY n.place ORDER BY n.place"""
_HAVE = "UPDATE chunks SET have = 1 WHERE digest = ? AND file = ? AND place = ?"


def part_of(file: bytes) -> str:
    """The name of an incomplete file."""
    return f"{file.hex()}.part"


def note(files: Files, file: bytes, place: int, chunks: Sequence[Chunk]) -> int:
    """These chunks follow at `place`; answers where the next ones do. Raises Invalid."""
    rows = []
    for chunk in chunks:
        if len(chunk.digest) != DIGEST_BYTES or not 0 < chunk.size <= CHUNK_BYTES:
            raise bad_recipe(file, f"a chunk must have a digest and 1 to {CHUNK_BYTES} bytes")
        rows.append((chunk.digest, file, place, chunk.size))
        place += chunk.size
    with files.index.transaction() as db:
        db.executemany("INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, 0)", rows)
    return place


def begin(files: Files, file: bytes) -> bool:
    """A new recipe: of an older one of the same file only what had arrived counts. False: nothing had."""
    begun = files.incoming.has(part_of(file))
    with files.index.transaction() as db:
        db.execute("DELETE FROM chunks WHERE file = ? AND have <= ?", (file, 0 if begun else 1))
    return begun


def gather(files: Files, file: bytes) -> list[bytes]:
    """Copy what is here already; answers the digests of the chunks that are not."""
    name = part_of(file)
    files.incoming.write_at(name, ())
    rows = files.index.rows(_SOURCES, (file,))
    for source in sorted({row[3] for row in rows}):
        _copy(files, file, source, [row for row in rows if row[3] == source])
    missing = files.index.rows(
        "SELECT DISTINCT digest FROM chunks WHERE file = ? AND have = 0", (file,)
    )
    return [row[0] for row in missing]


def here(files: Files, file: bytes) -> int:
    """How many chunks of a file that is put together are here."""
    query = "SELECT COUNT(*) FROM chunks WHERE file = ? AND have = 1"
    return int(files.index.rows(query, (file,))[0][0])


def _copy(
    files: Files, file: bytes, source: bytes, rows: list[tuple[bytes, int, int, bytes, int]]
) -> None:
    found = files.find(source)
    if found is None:
        return
    target = os.open(part_of(file), os.O_WRONLY | os.O_NOFOLLOW, dir_fd=files.incoming.folder)
    with opened(found), opened(target):
        for place, begin, size in runs((place, begin, size) for _, place, size, _, begin in rows):
            copy_range(found, begin, target, place, size)
            write_back(target, place, size)
    with files.index.transaction() as db:
        db.executemany(_HAVE, ((digest, file, place) for digest, place, *_ in rows))


def runs(parts: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Neighbours in both files are one part, up to a size that the disk writes while the next one is copied."""
    place = begin = size = 0
    for at, source, more in parts:
        if (at, source) != (place + size, begin + size) or size >= RUN_BYTES:
            if size:
                yield place, begin, size
            place, begin, size = at, source, 0
        size += more
    if size:
        yield place, begin, size


class Running:
    """The digest of a file that nobody has begun before and whose chunks come one behind the other, as they do in a
    first push: what was hashed on its way to the disk is not read again."""

    def __init__(self) -> None:
        self._hash = blake3()
        self.place = 0

    def take(self, place: int, content: memoryview) -> None:
        """These bytes were written there."""
        if place == self.place:
            self._hash.update(content)
            self.place += len(content)

    def is_whole(self, digest: bytes, size: int) -> bool:
        """Whether all of the file has come so, and is what it should be."""
        return self.place == size and self._hash.digest() == digest


class Place(NamedTuple):
    """Where a chunk is wanted."""

    file: bytes
    place: int
    digest: bytes
    size: int


def places(files: Files, contents: Sequence[tuple[bytes, memoryview]]) -> list[Place]:
    """All places that want chunks of these digests and sizes, by file and place."""
    sizes = {digest: len(content) for digest, content in contents}
    found: list[Place] = []
    digests = list(sizes)
    for first in range(0, len(digests), _SOME):
        some = digests[first : first + _SOME]
        query = f"""SELECT file, place, digest, size FROM chunks
            WHERE have = 0 AND digest IN ({",".join("?" * len(some))})"""
        rows = files.index.rows(query, some)
        found += [Place(*row) for row in rows if row[3] == sizes[row[2]]]
    return sorted(found)


def hashed(places: Sequence[Place], running: Mapping[bytes, Running]) -> set[bytes]:
    """Chunks that come just where the digest of their file goes on, and so need not be looked at by themselves.

    If that is right at the end, so are they, or the recipe lies: who builds another file upon them later finds that one
    wrong, and then they are forgotten (`complete`).
    """
    known = set[bytes]()
    for file, wanted in groupby(places, key=attrgetter("file")):
        end = running[file].place if file in running else -1
        for each in wanted:
            if each.place != end:
                break
            known.add(each.digest)
            end += each.size
    return known


def receive(
    files: Files,
    places: Sequence[Place],
    contents: Mapping[bytes, memoryview],
    running: Mapping[bytes, Running],
) -> None:
    """Chunks go to every place that wants them."""
    for file, wanted in groupby(places, key=attrgetter("file")):
        parts = [(each.place, contents[each.digest]) for each in wanted]
        files.incoming.write_at(part_of(file), parts)
        if (digest := running.get(file)) is not None:
            for place, content in parts:
                digest.take(place, content)
    if places:
        with files.index.transaction() as db:
            db.executemany(_HAVE, ((each.digest, each.file, each.place) for each in places))


def complete(files: Files, file: bytes, size: int, running: Running | None) -> None:
    """A file that lacks no chunk gets its name. Raises Conflict when its chunks do not make it."""
    name = part_of(file)
    if _lacks(files, file):
        return
    with opened(files.incoming.open(name)) as made:
        known = running is not None and running.is_whole(file, size)
        right = os.fstat(made).st_size == size and (known or digest_of(made) == file)
        if not right:
            _forget_wrong(files, file, made)
    if not right:
        raise Conflict(
            f"the chunks of {file.hex()} do not make that file: a program changed its older version, or the recipe "
            "is wrong; push again, and only what was wrong travels",
            reason="CONTENT_CHANGED",
        )
    os.rename(name, file.hex(), src_dir_fd=files.incoming.folder, dst_dir_fd=files.incoming.folder)


def _lacks(files: Files, file: bytes) -> bool:
    query = "SELECT 1 FROM chunks WHERE file = ? AND have = 0 LIMIT 1"
    return bool(files.index.rows(query, (file,)))


def _forget_wrong(files: Files, file: bytes, made: int) -> None:
    """Nobody has the chunks that are not what they should be, whatever was believed."""
    rows = files.index.rows("SELECT digest, place, size FROM chunks WHERE file = ?", (file,))
    wrong = [(d,) for d, place, size in rows if blake3(os.pread(made, size, place)).digest() != d]
    with files.index.transaction() as db:
        db.executemany("DELETE FROM chunks WHERE digest = ?", wrong)
        db.execute("DELETE FROM chunks WHERE file = ?", (file,))
    files.incoming.remove(part_of(file))


def bad_recipe(file: bytes, problem: str) -> Invalid:
    """What is wrong with a recipe."""
    return Invalid((Violation(f"recipe[{file.hex()[:16]}]", problem),), reason="BAD_RECIPE")
