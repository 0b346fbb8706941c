"""Large files that are put together from chunks: of this push, of one that broke, and of older versions.

A row of `chunks` says where in a file a chunk lies, and whether the file has it already (`have`: 0, 1, or 2 when it had
by an older recipe and nobody has told of it since). A file that is not complete
lies in `incoming` as `<digest>.part`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid, Violation
from hai_backend.domain.workspace import DIGEST_BYTES, Chunk
from hai_backend.workspaces.chunks.assembly import Assembly
from hai_backend.workspaces.chunks.sources import Sources, part_of
from hai_backend.workspaces.chunks.streamed_file import Place
from hai_backend.workspaces.contents import opened
from hai_backend.workspaces.files import Files

LEAST_BYTES, CHUNK_BYTES = 4096, 2 << 20
_SOME = 500  # in one question
_NOTE = """INSERT INTO chunks VALUES (?, ?, ?, ?, 0)
    ON CONFLICT DO UPDATE SET have = (have = 2 AND size = excluded.size), size = excluded.size"""
_HAVE = "UPDATE chunks SET have = 1 WHERE digest = ? AND file = ? AND place = ?"


def note(files: Files, file: bytes, size: int, place: int, chunks: Sequence[Chunk]) -> list[Place]:
    """These chunks of a file follow at `place`; answers each with its own. Raises Invalid."""
    told = []
    for chunk in chunks:
        least = min(LEAST_BYTES, max(1, size - place))
        if len(chunk.digest) != DIGEST_BYTES or not least <= chunk.size <= CHUNK_BYTES:
            sizes = f"{LEAST_BYTES} to {CHUNK_BYTES} bytes, but for the last"
            raise bad_recipe(file, f"a chunk must have a digest and {sizes}")
        told.append(Place(file, place, chunk.digest, chunk.size))
        place += chunk.size
    rows = ((each.digest, file, each.place, each.size) for each in told)
    with files.index.transaction() as db:
        db.executemany(_NOTE, rows)
    return told


def begin(files: Files, file: bytes, sources: Sources) -> Assembly:
    """A new recipe: of an older one of the same file only what had arrived counts."""
    name = part_of(file)
    begun = files.incoming.has(name)
    made = Assembly(files, file, sources, begun=begun)
    files.claim(file, made.stop)
    with files.index.transaction() as db:
        db.execute("DELETE FROM chunks WHERE file = ? AND have < ?", (file, 1 if begun else 3))
        db.execute("UPDATE chunks SET have = 2 WHERE file = ?", (file,))
    files.incoming.write_at(name, ())
    sources.forget(file)
    return made


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


def by_file(places: Sequence[Place]) -> Iterator[tuple[bytes, list[Place]]]:
    """Each file, and its places in order."""
    for file, wanted in groupby(places, key=attrgetter("file")):
        yield file, list(wanted)


def hashed(places: Sequence[Place], made: Mapping[bytes, Assembly]) -> set[bytes]:
    """Chunks that come just where the digest of their file goes on, and so need not be looked at by themselves.

    If that is right at the end, so are they, or the recipe lies: who builds another file upon them later finds that one
    wrong, and then they are forgotten (`complete`).
    """
    known = set[bytes]()
    for file, wanted in by_file(places):
        end = made[file].running.place if file in made else -1
        for each in wanted:
            if each.place != end:
                break
            known.add(each.digest)
            end += each.size
    return known


def receive(
    files: Files, wanted: Sequence[Place], contents: Mapping[bytes, memoryview], made: Assembly
) -> None:
    """Chunks go to the places of one file that want them."""
    _have(files, made.take(wanted, contents))


def note_written(files: Files, made: Assembly) -> None:
    """What is in the file counts as here from now on."""
    _have(files, made.running.written())


def _have(files: Files, written: Sequence[Place]) -> None:
    if written:
        with files.index.transaction() as db:
            db.executemany(_HAVE, ((each.digest, each.file, each.place) for each in written))


def rest(files: Files, made: Assembly) -> None:
    """What arrived is kept; more may come. Raises OSError."""
    try:
        made.rest()
    finally:
        note_written(files, made)


def complete(files: Files, file: bytes, size: int, made: Assembly | None) -> None:
    """A file that lacks no chunk gets its name. Raises Conflict when its chunks do not make it."""
    if made is None:
        return
    with made.held():
        made.end()
        note_written(files, made)
        if made.running.place == size:
            _name(files, file, size, made)


def _name(files: Files, file: bytes, size: int, made: Assembly) -> None:
    with files.index.transaction() as db:
        db.execute("DELETE FROM chunks WHERE file = ? AND have = 2", (file,))
        db.execute("UPDATE chunks SET have = 1 WHERE file = ?", (file,))
    name, folder = part_of(file), files.incoming.folder
    if not made.running.is_whole(file, size):
        with opened(files.incoming.open(name)) as wrong:
            _forget_wrong(files, file, wrong)
        raise Conflict(
            f"the chunks of {file.hex()} do not make that file: a program changed its older version, or the recipe "
            "is wrong; push again, and only what was wrong travels",
            reason="CONTENT_CHANGED",
        )
    os.rename(name, file.hex(), src_dir_fd=folder, dst_dir_fd=folder)


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
