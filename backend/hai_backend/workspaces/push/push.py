"""A push: what it wants, what of that is missing, what arrives, and the revision that is made of it at the end.

Nothing of it is in the tree before `commit`. What arrives is verified before it is stored, only if it is wanted, and
looked for in this workspace alone: what others have can be neither probed nor read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Chunk, Entry, EntryKind, Revision, folder_of
from hai_backend.workspaces import garbage
from hai_backend.workspaces.chunks import chunks
from hai_backend.workspaces.chunks.assembly import Assembly
from hai_backend.workspaces.chunks.sources import Sources, part_of
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.commit_preparation import Arrived, carry_out
from hai_backend.workspaces.push.materialize import Content, Laid
from hai_backend.workspaces.push.receive import Piece, bad_contents, cut, verify
from hai_backend.workspaces.push.staging import Author

WHOLE_BYTES = 1 << 20  # larger files come in chunks
FEW = 16  # so many contents first go to `incoming`, for a handful of files is synced one by one
GROWING = 4  # large files that may hold blocks of memory
# So much may wait for the disk while more arrives. A flush holds up who creates files; one of large files nobody.
EARLY_BYTES, GROWN_BYTES = 128 << 20, 32 << 20
_SOME = 500


class Push:
    """One push into one workspace. Everything blocks; one thread at a time."""

    def __init__(self, files: Files, number: int) -> None:
        self._files = files
        self._number = number
        self._missing: dict[bytes, int] = {}  # contents that are wanted, with their sizes
        self._laid = Laid(files, number)
        self._places: dict[bytes, list[Entry]] = {}  # of missing contents, in new directories
        self._elsewhere: set[bytes] = set()  # missing contents that are wanted at other places, too
        self._asked = 0
        self._recipes: dict[bytes, int] = {}  # bytes of a recipe that is being told
        self._made: dict[bytes, Assembly] = {}  # large files
        self._growing: dict[bytes, None] = {}  # some of them; the one that grew last is the last
        self._sources = Sources(files)
        self.received_bytes = 0
        self.reused_chunks = 0

    @cached_property
    def _left(self) -> set[str]:
        """What is in `incoming`: what others had left there, and what this push has added since."""
        return set(self._files.incoming.names())

    @cached_property
    def _from_nothing(self) -> bool:
        return not self._files.index.newest().number and not self._left

    def want(self, entries: Iterable[Entry]) -> list[bytes]:
        """Add changes; answers the digests that are missing and were not asked for yet. Raises Invalid."""
        entries = list(entries)
        staging.want(self._files.index, self._number, entries)
        told = [entry for entry in entries if entry.kind is EntryKind.FILE]
        wanted = {entry.digest: entry.size for entry in told}
        missing = [d for d in self._absent(wanted) if d not in self._missing]
        self._missing |= {digest: wanted[digest] for digest in missing}
        self._asked += len(missing)
        self._note_places(told)
        return missing

    def _note_places(self, told: list[Entry]) -> None:
        for entry in told:
            if entry.digest not in self._missing:
                continue
            if self._asked > FEW and self._laid.top(folder_of(entry.path)):
                self._places.setdefault(entry.digest, []).append(entry)
            else:
                self._elsewhere.add(entry.digest)

    def _absent(self, wanted: dict[bytes, int]) -> list[bytes]:
        """In the first push into an empty workspace, everything; nobody needs to look."""
        if self._from_nothing:
            return list(wanted)
        known = self._known(list(wanted))
        incoming = self._files.incoming
        left = {d for d in wanted if d.hex() in self._left and incoming.has(d.hex())}
        return [d for d in wanted if d not in known and d not in left]

    def _known(self, digests: list[bytes]) -> set[bytes]:
        """A program may have removed what was to become an object, so these are looked for."""
        found: set[bytes] = set()
        for begin in range(0, len(digests), _SOME):
            some = digests[begin : begin + _SOME]
            marks = ",".join("?" * len(some))
            query = (
                f"SELECT digest FROM entries WHERE kind = 1 AND gone = 0 AND digest IN ({marks})"
            )
            found |= {row[0] for row in self._files.index.rows(query, some)}
            query = f"SELECT digest FROM objects WHERE digest IN ({marks})"
            kept = {row[0] for row in self._files.index.rows(query, some)} - found
            found |= {digest for digest in kept if self._files.objects.has(digest.hex())}
        return found

    def recipe(self, file: bytes, told: Sequence[Chunk], *, last: bool) -> list[bytes]:
        """Chunks of a large file, which go on where the last ones ended; answers which are missing. Raises Invalid."""
        if file not in self._missing:
            return []
        if file not in self._made:
            self._files.reserve.require()
            self._made[file] = chunks.begin(self._files, file, self._sources)
        self._work_at(file)
        place = self._recipes.get(file, 0)
        places = chunks.note(self._files, file, self._missing[file], place, told)
        self._recipes[file] = place = place + sum(each.size for each in places)
        if place > self._missing[file] or (last and place < self._missing[file]):
            problem = f"its chunks have {place} bytes, its entry {self._missing[file]}"
            raise chunks.bad_recipe(file, problem)
        missing = self._made[file].tell(places)
        self.reused_chunks += len(told) - len(missing)
        return missing

    def receive(self, pieces: Sequence[Piece]) -> int:
        """Verify and store contents; answers all bytes so far. Raises Invalid, and stores nothing of a bad message."""
        for piece in pieces:
            contents = cut(piece)  # first: what a message says of its sizes may be a lie
            self._files.reserve.require(sum(piece.sizes))
            places = chunks.places(self._files, contents) if self._recipes else []
            places = [each for each in places if each.file in self._made]
            hashed = chunks.hashed(places, self._made) - self._missing.keys()
            verify(each for each in contents if each[0] not in hashed)
            self._left.update(self._laid.store(self._taken(contents)))
            known = dict(contents)
            for file, wanted in chunks.by_file(places):
                self._work_at(file)
                chunks.receive(self._files, wanted, known, self._made[file])
            self._count(sum(piece.sizes))
        self._laid.note()
        return self.received_bytes

    def _work_at(self, file: bytes) -> None:
        """A large file grows now; of others that did, few may hold memory."""
        self._growing.pop(file, None)
        self._growing[file] = None
        if len(self._growing) > GROWING:
            oldest = next(iter(self._growing))
            del self._growing[oldest]
            chunks.rest(self._files, self._made[oldest])

    def _count(self, size: int) -> None:
        before, self.received_bytes = self.received_bytes, self.received_bytes + size
        early = GROWN_BYTES if self._growing else EARLY_BYTES
        if before // early != self.received_bytes // early:
            self._files.incoming.sync_early(list(map(part_of, self._growing)))

    def _taken(self, contents: Iterable[tuple[bytes, memoryview]]) -> Iterator[Content]:
        """Those that are wanted. Of two for one place one goes elsewhere: they may be stored at the same time."""
        taken = set[str]()
        for digest, content in contents:
            size = self._missing.get(digest)
            if size is None or size > WHOLE_BYTES:
                continue
            if size != len(content):
                raise bad_contents(
                    f"{digest.hex()} has {len(content)} bytes, its entry says {size}"
                )
            free: list[Entry] = []
            for entry in self._places.pop(digest, ()):
                if entry.path in taken:
                    self._elsewhere.add(digest)
                else:
                    taken.add(entry.path)
                    free.append(entry)
            yield Content(digest, content, free, digest in self._elsewhere)
            self._elsewhere.discard(digest)
            del self._missing[digest]

    def commit(self, base: int, author: Author, *, allow_many_removals: bool) -> Revision:
        """Make it a revision. Raises Conflict or Invalid, and then nothing has changed."""
        files = self._files
        apply.apply(files)
        newest = files.index.newest()
        if newest.number != base:
            raise revision_changed(base, newest.number)
        if self._laid.used:
            files.incoming.sync_early()  # while the change is judged
        staging.stage_wanted(files.index, self._number)
        if not staging.settle(files.index, allow_many_removals=allow_many_removals):
            self._drop_left()
            return newest
        revision = carry_out(files, author, Arrived(self._laid, self._made))
        self._drop_left()
        return revision

    def _drop_left(self) -> None:
        """What had arrived for other pushes and was not wanted by this one belongs to nothing any more."""
        with suppress(OSError, sqlite3.Error):  # the revision is made; collecting tries again
            garbage.drop_arrived(self._files)

    def close(self) -> None:
        """Forget what was wanted; what arrived stays for the next try."""
        for file, made in self._made.items():
            with suppress(OSError, sqlite3.Error):  # a full disk: what is not noted travels again
                chunks.rest(self._files, made)
            self._files.release(file, made.stop)
        self._sources.close()
        self._laid.close()
        staging.forget(self._files.index, self._number)


def revision_changed(base: int, newest: int) -> Conflict:
    """Somebody was faster."""
    return Conflict(
        f"the newest revision is {newest}, the changes were computed against {base}; compare again",
        reason="REVISION_CHANGED",
    )
