"""Tracks the chunks of large files, which come from this push, from an interrupted one, or from older versions.

A row of `chunks` has the offset of a chunk in a file. Its column `have` says whether the file contains the chunk: 0 no,
1 yes, 2 according to an older recipe that the current one has not confirmed yet. An incomplete file is in `incoming`,
under the name `<digest>.part`.
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
from hai_backend.workspaces.chunks.sources import Sources, partial_name
from hai_backend.workspaces.chunks.streamed_file import ChunkPosition
from hai_backend.workspaces.contents import closing_descriptor
from hai_backend.workspaces.files import WorkspaceFiles

MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4096, 2 << 20
_BATCH = 500  # digests per query
# A chunk of an older recipe (`have` 2) is confirmed if its size is the same.
_INSERT = """INSERT INTO chunks VALUES (?, ?, ?, ?, 0)
    ON CONFLICT DO UPDATE SET have = (have = 2 AND size = excluded.size), size = excluded.size"""
_MARK_PRESENT = "UPDATE chunks SET have = 1 WHERE digest = ? AND file = ? AND place = ?"


def add_positions(
    files: WorkspaceFiles, file: bytes, size: int, offset: int, chunks: Sequence[Chunk]
) -> list[ChunkPosition]:
    """Record the chunks that follow at `offset` in a file, and return their positions. Raise Invalid."""
    positions = []
    for chunk in chunks:
        minimum = min(MIN_CHUNK_BYTES, max(1, size - offset))
        if len(chunk.digest) != DIGEST_BYTES or not minimum <= chunk.size <= MAX_CHUNK_BYTES:
            sizes = f"{MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES} bytes (the last chunk may be smaller)"
            raise bad_recipe_error(file, f"a chunk must have a digest and {sizes}")
        positions.append(ChunkPosition(file, offset, chunk.digest, chunk.size))
        offset += chunk.size
    rows = ((position.digest, file, position.offset, position.size) for position in positions)
    with files.index.transaction() as db:
        db.executemany(_INSERT, rows)
    return positions


def begin_assembly(files: WorkspaceFiles, file: bytes, sources: Sources) -> Assembly:
    """Start a new recipe for a file. Of an older recipe, only the chunks that have arrived still count."""
    name = partial_name(file)
    resumed = files.incoming.has(name)
    assembly = Assembly(files, file, sources, resumed=resumed)
    files.claim_assembly(file, assembly.abandon)
    # If there is no partial file, no chunk has arrived, whatever `have` says.
    with files.index.transaction() as db:
        db.execute("DELETE FROM chunks WHERE file = ? AND have < ?", (file, 1 if resumed else 3))
        db.execute("UPDATE chunks SET have = 2 WHERE file = ?", (file,))
    files.incoming.write_at(name, ())
    sources.invalidate(file)
    return assembly


def find_needed_positions(
    files: WorkspaceFiles, contents: Sequence[tuple[bytes, memoryview]]
) -> list[ChunkPosition]:
    """Return the positions that need chunks of these digests and sizes, by file and offset."""
    sizes = {digest: len(content) for digest, content in contents}
    positions: list[ChunkPosition] = []
    digests = list(sizes)
    for first in range(0, len(digests), _BATCH):
        batch = digests[first : first + _BATCH]
        query = f"""SELECT file, place, digest, size FROM chunks
            WHERE have = 0 AND digest IN ({",".join("?" * len(batch))})"""
        rows = files.index.fetch_rows(query, batch)
        positions += [ChunkPosition(*row) for row in rows if row[3] == sizes[row[2]]]
    return sorted(positions)


def group_by_file(
    positions: Sequence[ChunkPosition],
) -> Iterator[tuple[bytes, list[ChunkPosition]]]:
    """Yield each file with its positions in order."""
    for file, in_file in groupby(positions, key=attrgetter("file")):
        yield file, list(in_file)


def find_covered_by_file_hash(
    positions: Sequence[ChunkPosition], assemblies: Mapping[bytes, Assembly]
) -> set[bytes]:
    """Return the chunks that continue a file and are hashed with it, so they need no check of their own.

    If the hash of the whole file is right, all its chunks have the right content. If a recipe names a wrong digest for
    a chunk, the hash of the next file that uses the chunk is wrong, and the chunk is discarded (`complete_file`).
    """
    covered = set[bytes]()
    for file, in_file in group_by_file(positions):
        end = assemblies[file].stream.offset if file in assemblies else -1
        for position in in_file:
            if position.offset != end:
                break
            covered.add(position.digest)
            end += position.size
    return covered


def write_chunks(
    files: WorkspaceFiles,
    positions: Sequence[ChunkPosition],
    contents: Mapping[bytes, memoryview],
    assembly: Assembly,
) -> None:
    """Write chunks to the positions of one file that need them."""
    _mark_present(files, assembly.write(positions, contents))


def record_written(files: WorkspaceFiles, assembly: Assembly) -> None:
    """Mark chunks as stored once they are in the file."""
    _mark_present(files, assembly.stream.take_written())


def _mark_present(files: WorkspaceFiles, written: Sequence[ChunkPosition]) -> None:
    if written:
        with files.index.transaction() as db:
            db.executemany(
                _MARK_PRESENT,
                ((position.digest, position.file, position.offset) for position in written),
            )


def flush(files: WorkspaceFiles, assembly: Assembly) -> None:
    """Write and record the chunks that have arrived. More may arrive later. Raise OSError."""
    try:
        assembly.flush()
    finally:
        record_written(files, assembly)


def complete_file(files: WorkspaceFiles, file: bytes, size: int, assembly: Assembly | None) -> None:
    """Rename a file to its digest if no chunk is missing. Raise Conflict when the content does not match.

    Do nothing if this push has no recipe for the file.
    """
    if assembly is None:
        return
    with assembly.locked():
        assembly.finish_file()
        record_written(files, assembly)
        if assembly.stream.offset == size:
            _install(files, file, size, assembly)


def _install(files: WorkspaceFiles, file: bytes, size: int, assembly: Assembly) -> None:
    """Rename a complete file to its digest. Raise Conflict if its content is wrong."""
    with files.index.transaction() as db:
        db.execute("DELETE FROM chunks WHERE file = ? AND have = 2", (file,))
        db.execute("UPDATE chunks SET have = 1 WHERE file = ?", (file,))
    name, folder = partial_name(file), files.incoming.folder
    if not assembly.stream.is_complete(file, size):
        with closing_descriptor(files.incoming.open(name)) as content:
            _discard_wrong_chunks(files, file, content)
        raise Conflict(
            f"the chunks of {file.hex()} do not match its digest: a program changed its older version, or the recipe "
            "is wrong; push again, and only the wrong chunks are sent",
            reason="CONTENT_CHANGED",
        )
    os.rename(name, file.hex(), src_dir_fd=folder, dst_dir_fd=folder)


def _discard_wrong_chunks(files: WorkspaceFiles, file: bytes, content: int) -> None:
    """Discard the chunks whose content does not match their digest, in every file that lists them."""
    rows = files.index.fetch_rows("SELECT digest, place, size FROM chunks WHERE file = ?", (file,))
    wrong = [
        (d,) for d, offset, size in rows if blake3(os.pread(content, size, offset)).digest() != d
    ]
    with files.index.transaction() as db:
        db.executemany("DELETE FROM chunks WHERE digest = ?", wrong)
        db.execute("DELETE FROM chunks WHERE file = ?", (file,))
    files.incoming.remove(partial_name(file))


def bad_recipe_error(file: bytes, problem: str) -> Invalid:
    return Invalid((Violation(f"recipe[{file.hex()[:16]}]", problem),), reason="BAD_RECIPE")
