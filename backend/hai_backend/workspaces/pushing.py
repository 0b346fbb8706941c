"""A push: what it wants, what of that is missing, what arrives, and the revision that is made of it at the end.

Nothing of it is in the tree before `commit`. What arrives is verified before it is stored, only if it is wanted, and
looked for in this workspace alone: what others have can be neither probed nor read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

import zstandard
from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid, Violation
from hai_backend.domain.workspace import (
    Chunk,
    Entry,
    EntryKind,
    Revision,
    joined,
    target_problem,
)
from hai_backend.workspaces import applying, chunks, staging
from hai_backend.workspaces.contents import copy_whole, digest_of, open_in, opened
from hai_backend.workspaces.files import Files, is_still
from hai_backend.workspaces.folders import Folders
from hai_backend.workspaces.staging import Author
from hai_backend.workspaces.stats import Stat

WHOLE_BYTES = 1 << 20  # larger files come in chunks
MESSAGE_BYTES = 16 << 20  # of one message, after decompression
_FEW = 16  # files that are synced one by one
_SOME = 500
_EMPTY = blake3().digest()


@dataclass(frozen=True, slots=True)
class Piece:
    """Contents of one message: digests, sizes, and the data one behind the other."""

    digests: Sequence[bytes]
    sizes: Sequence[int]
    data: bytes
    compressed: bool


class Push:
    """One push into one workspace. Everything blocks; one thread at a time."""

    def __init__(self, files: Files, number: int) -> None:
        self._files = files
        self._number = number
        self._missing: dict[bytes, int] = {}  # contents that are wanted, with their sizes
        self._recipes: dict[bytes, int] = {}  # bytes of a recipe that is being told
        self._from_nothing = not files.index.newest().number and not files.incoming.names()
        self.received_bytes = 0

    def want(self, entries: Iterable[Entry]) -> list[bytes]:
        """Add changes; answers the digests that are missing and were not asked for yet. Raises Invalid."""
        entries = list(entries)
        staging.want(self._files.index, self._number, entries)
        wanted = {e.digest: e.size for e in entries if e.kind is EntryKind.FILE}
        missing = [d for d in self._absent(wanted) if d not in self._missing]
        self._missing |= {digest: wanted[digest] for digest in missing}
        return missing

    def _absent(self, wanted: dict[bytes, int]) -> list[bytes]:
        """In the first push into an empty workspace, everything; nobody needs to look."""
        if self._from_nothing:
            return list(wanted)
        known = self._known(list(wanted))
        incoming = self._files.incoming
        return [d for d in wanted if d not in known and not incoming.has(d.hex())]

    def _known(self, digests: list[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        for begin in range(0, len(digests), _SOME):
            some = digests[begin : begin + _SOME]
            marks = ",".join("?" * len(some))
            query = f"""SELECT digest FROM objects WHERE digest IN ({marks}) UNION
                SELECT digest FROM entries WHERE kind = 1 AND gone = 0 AND digest IN ({marks})"""
            found |= {row[0] for row in self._files.index.rows(query, some + some)}
        return found

    def recipe(self, file: bytes, told: Sequence[Chunk], *, last: bool) -> list[bytes]:
        """Chunks of a large file; answers which are missing, once all were told. Raises Invalid."""
        if file not in self._missing:
            return []
        if file not in self._recipes:
            chunks.begin(self._files, file)
        place = chunks.note(self._files, file, self._recipes.get(file, 0), told)
        self._recipes[file] = place
        if not last:
            return []
        if place != self._missing[file]:
            problem = f"its chunks have {place} bytes, its entry {self._missing[file]}"
            raise chunks.bad_recipe(file, problem)
        return chunks.gather(self._files, file)

    def receive(self, piece: Piece) -> int:
        """Verify and store contents; answers all bytes so far. Raises Invalid, and stores nothing of a bad message."""
        data = memoryview(_plain(piece))
        cut = list(_cut(piece, data))
        bad = [d for d, content in cut if blake3(content).digest() != d]
        if bad:
            raise _bad_contents(
                f"{len(bad)} contents are not what their digests say, as {bad[0].hex()}"
            )
        for digest, content in cut:
            self._take(digest, content)
        if self._recipes:
            chunks.receive(self._files, cut)
        self.received_bytes += len(data)
        return self.received_bytes

    def _take(self, digest: bytes, content: memoryview) -> None:
        size = self._missing.get(digest)
        if size is None or size > WHOLE_BYTES:
            return
        if size != len(content):
            raise _bad_contents(f"{digest.hex()} has {len(content)} bytes, its entry says {size}")
        self._files.incoming.put(digest.hex(), content)
        del self._missing[digest]

    def commit(self, base: int, author: Author, *, allow_many_removals: bool) -> Revision:
        """Make it a revision. Raises Conflict or Invalid, and then nothing has changed."""
        files = self._files
        applying.apply(files)
        newest = files.index.newest()
        if newest.number != base:
            raise revision_changed(base, newest.number)
        staging.stage_wanted(files.index, self._number)
        if not staging.settle(files.index, allow_many_removals=allow_many_removals):
            return newest
        return carry_out(files, author)

    def close(self) -> None:
        """Forget what was wanted; what arrived stays for the next try."""
        staging.forget(self._files.index, self._number)


def carry_out(files: Files, author: Author) -> Revision:
    """Make what is staged and settled a revision, and the tree so. Raises Conflict, and then nothing has changed."""
    require_as_known(files)
    ready = prepare(files)
    files.incoming.sync(ready if len(ready) <= _FEW else None)
    revision = staging.commit(files.index, author)
    applying.apply(files)
    return revision


def require_as_known(files: Files) -> None:
    """Raises Conflict when programs changed what is to be replaced: that must become a revision first."""
    query = """SELECT s.folder, s.name, s.kind, e.digest, t.size, t.mtime_ns, t.ino, t.ctime_ns, t.seen_ns
        FROM staged s LEFT JOIN entries e ON e.folder = s.folder AND e.name = s.name AND e.gone = 0
        LEFT JOIN stats t ON t.folder = s.folder AND t.name = s.name
        WHERE (e.kind = 1 OR e.kind IS NULL) AND (s.folder, s.name) > (?, ?)
        ORDER BY s.folder, s.name LIMIT 2000"""
    after, absent = ("", ""), None
    with files.folders() as folders:
        while rows := files.index.rows(query, after):
            after = (rows[-1][0], rows[-1][1])
            for folder, name, kind, digest, *seen in rows:
                if folder == absent:
                    continue
                if not _is_folder(files, folders, folder):
                    absent = folder
                elif not (
                    _is_free(folders.at(folder), name, kind)
                    if digest is None
                    else _is_known(folders.at(folder), name, digest, seen)
                ):
                    raise _written(joined(folder, name))


def _is_folder(files: Files, folders: Folders, folder: str) -> bool:
    """What is missing altogether is made again, and what never was a directory makes way for one."""
    try:
        folders.at(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        known = files.index.entry(folder, files.index.newest().number)
        if known is not None and known.kind is EntryKind.DIRECTORY:
            raise _written(folder) from error
        return False
    return True


def _is_free(folder: int, name: str, kind: int) -> bool:
    """Nothing that a look would make part of a revision is in the way; anything else will be set aside."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if S_ISLNK(mode):
            return bool(target_problem(name, os.readlink(name, dir_fd=folder)))
    except FileNotFoundError:
        return True
    if S_ISDIR(mode):
        return kind == EntryKind.DIRECTORY
    return not S_ISREG(mode)


def _is_known(folder: int, name: str, digest: bytes, seen: list[Any]) -> bool:
    try:
        file = open_in(folder, name)
    except OSError:
        return False
    known = Stat(*seen) if seen[0] is not None else None
    with opened(file):
        return is_still(file, known, digest)


def prepare(files: Files) -> list[str]:
    """Give every staged file a content of its own in `incoming`; answers their names. Raises Conflict."""
    query = """SELECT folder, name, digest, size FROM staged WHERE kind = 1 AND (folder, name) > (?, ?)
        ORDER BY folder, name LIMIT 2000"""
    after, lacking, ready = ("", ""), [], []
    twice = """SELECT digest FROM staged WHERE kind = 1 GROUP BY digest HAVING COUNT(*) > 1"""
    used = {row[0]: 0 for row in files.index.rows(twice)}
    while rows := files.index.rows(query, after):
        after = (rows[-1][0], rows[-1][1])
        sources = []
        for folder, name, digest, size in rows:
            source = digest.hex()
            if digest in used:
                used[digest] += 1
                source = f"{source}.{used[digest]}" if used[digest] > 1 else source
            if _provide(files, digest, size, source):
                sources.append((source, folder, name))
            else:
                lacking.append(joined(folder, name))
        ready += [source for source, _, _ in sources[: _FEW + 1]]
        with files.index.transaction() as db:
            db.executemany("UPDATE staged SET source = ? WHERE folder = ? AND name = ?", sources)
    if lacking:
        raise Conflict(
            f"the contents of {len(lacking)} files are not here, as of {lacking[0]}: they have not arrived, "
            "or a program changed them in place; push again, or restore other paths",
            reason="CONTENTS_MISSING",
        )
    return ready


def _provide(files: Files, digest: bytes, size: int, source: str) -> bool:
    incoming = files.incoming
    if incoming.has(source) or chunks.complete(files, digest, size):
        return True
    if digest == _EMPTY:
        incoming.put(source, memoryview(b""))
        return True
    found = incoming.open(digest.hex()) if incoming.has(digest.hex()) else files.find(digest)
    if found is None:
        return False
    target = os.open(
        source, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644, dir_fd=incoming.folder
    )
    with opened(found), opened(target):
        copy_whole(found, target)
        right = digest_of(target) == digest
    if not right:
        incoming.remove(source)
    return right


def revision_changed(base: int, newest: int) -> Conflict:
    """Somebody was faster."""
    return Conflict(
        f"the newest revision is {newest}, the changes were computed against {base}; compare again",
        reason="REVISION_CHANGED",
    )


def _written(path: str) -> Conflict:
    return Conflict(
        f"a program on the cluster changed {path} since the newest revision; look at the tree again",
        reason="REVISION_CHANGED",
    )


def _plain(piece: Piece) -> bytes:
    """The data as they were. What claims to be more than a message may hold is not unpacked at all."""
    total = sum(piece.sizes)
    if len(piece.digests) != len(piece.sizes) or any(size < 0 for size in piece.sizes):
        raise _bad_contents(f"{len(piece.digests)} digests come with {len(piece.sizes)} sizes")
    if total > MESSAGE_BYTES:
        raise _bad_contents(f"a message of {total} bytes; at most {MESSAGE_BYTES} are taken")
    data = _decompressed(piece.data, total) if piece.compressed else piece.data
    if len(data) != total:
        raise _bad_contents(f"{len(data)} bytes; their sizes say {total}")
    return data


def _decompressed(data: bytes, total: int) -> bytes:
    try:
        told = zstandard.frame_content_size(data)  # believed by the library, whatever we allow
        if told > total:
            raise _bad_contents(f"{told} bytes compressed; their sizes say {total}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=total + 1)
    except zstandard.ZstdError as error:
        raise _bad_contents(f"cannot be decompressed to {total} bytes: {error}") from error


def _cut(piece: Piece, data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    place = 0
    for digest, size in zip(piece.digests, piece.sizes, strict=True):
        yield digest, data[place : place + size]
        place += size


def _bad_contents(problem: str) -> Invalid:
    return Invalid((Violation("contents", problem),), reason="BAD_CONTENTS")
