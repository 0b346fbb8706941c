"""Handles one push: its changes, the contents that are missing, and the commit at the end.

Nothing is written to the tree before `commit`. Contents are stored only if they were requested and match their digests.
They are looked up in this workspace alone, so a push can neither probe nor read the contents of other users.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Chunk, Entry, EntryKind, Revision, folder_of
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces.chunks import chunks
from hai_backend.workspaces.chunks.assembly import Assembly
from hai_backend.workspaces.chunks.sources import Sources, partial_name
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.commit_preparation import ReceivedContents, commit_staged
from hai_backend.workspaces.push.materialize import Content, NewDirectories
from hai_backend.workspaces.push.receive import ContentsMessage, bad_contents_error, split, verify
from hai_backend.workspaces.push.staging import Author

MAX_UNCHUNKED_BYTES = 1 << 20  # larger files are pushed in chunks
FEW_CONTENTS = 16  # the first so many contents go to `incoming`, where each is synced separately
MAX_ACTIVE_ASSEMBLIES = 4  # large files that may hold buffers at the same time
# Bytes received between two early syncs. A sync of everything delays file creation; one of large files alone does not.
SYNC_BYTES, ASSEMBLY_SYNC_BYTES = 128 << 20, 32 << 20
_BATCH = 500


class Push:
    """One push into one workspace. Every method blocks. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles, number: int) -> None:
        self._files = files
        self._number = number
        self._missing: dict[bytes, int] = {}  # digests of requested contents, with their sizes
        self._new_directories = NewDirectories(files, number)
        # The paths of missing contents in new directories, and contents that other paths need as well
        self._targets: dict[bytes, list[Entry]] = {}
        self._needed_elsewhere: set[bytes] = set()
        self._requested_count = 0
        self._recipe_bytes: dict[bytes, int] = {}  # bytes that the recipe has listed so far
        self._assemblies: dict[bytes, Assembly] = {}  # large files
        self._active: dict[bytes, None] = {}  # large files that hold buffers, in order of use
        self._sources = Sources(files)
        self.received_bytes = 0
        self.reused_chunks = 0

    @cached_property
    def _incoming_names(self) -> set[str]:
        """The names in `incoming`: contents of interrupted pushes, and those that this push has added."""
        return set(self._files.incoming.list_names())

    @cached_property
    def _is_first_push(self) -> bool:
        return not self._files.index.newest_revision().number and not self._incoming_names

    def add_changes(self, entries: Iterable[Entry]) -> list[bytes]:
        """Add changes. Return the digests of missing contents that were not requested yet. Raise Invalid."""
        entries = list(entries)
        staging.add_requested(self._files.index, self._number, entries)
        file_entries = [entry for entry in entries if entry.kind is EntryKind.FILE]
        sizes = {entry.digest: entry.size for entry in file_entries}
        missing = [d for d in self._list_missing(sizes) if d not in self._missing]
        self._missing |= {digest: sizes[digest] for digest in missing}
        self._requested_count += len(missing)
        self._add_targets(file_entries)
        return missing

    def _add_targets(self, file_entries: list[Entry]) -> None:
        for entry in file_entries:
            if entry.digest not in self._missing:
                continue
            if self._requested_count > FEW_CONTENTS and self._new_directories.find_outermost_new(
                folder_of(entry.path)
            ):
                self._targets.setdefault(entry.digest, []).append(entry)
            else:
                self._needed_elsewhere.add(entry.digest)

    def _list_missing(self, sizes: dict[bytes, int]) -> list[bytes]:
        """Return the digests that are not stored. The first push into an empty workspace needs no look-up."""
        if self._is_first_push:
            return list(sizes)
        stored = self._find_stored(list(sizes))
        incoming = self._files.incoming
        arrived = {d for d in sizes if d.hex() in self._incoming_names and incoming.has(d.hex())}
        return [d for d in sizes if d not in stored and d not in arrived]

    def _find_stored(self, digests: list[bytes]) -> set[bytes]:
        """Return the digests that the index has.

        Objects are checked on disk: a program may have deleted a file before it became an object.
        """
        stored: set[bytes] = set()
        for begin in range(0, len(digests), _BATCH):
            batch = digests[begin : begin + _BATCH]
            marks = ",".join("?" * len(batch))
            query = (
                f"SELECT digest FROM entries WHERE kind = 1 AND gone = 0 AND digest IN ({marks})"
            )
            stored |= {row[0] for row in self._files.index.fetch_rows(query, batch)}
            query = f"SELECT digest FROM objects WHERE digest IN ({marks})"
            objects = {row[0] for row in self._files.index.fetch_rows(query, batch)} - stored
            stored |= {digest for digest in objects if self._files.objects.has(digest.hex())}
        return stored

    def add_recipe(self, file: bytes, recipe: Sequence[Chunk], *, last: bool) -> list[bytes]:
        """Add the next chunks of a large file to its recipe. Return the missing digests. Raise Invalid."""
        if file not in self._missing:
            return []
        if file not in self._assemblies:
            self._files.reserve.require()
            self._assemblies[file] = chunks.begin_assembly(self._files, file, self._sources)
        self._activate(file)
        offset = self._recipe_bytes.get(file, 0)
        positions = chunks.add_positions(self._files, file, self._missing[file], offset, recipe)
        self._recipe_bytes[file] = offset = offset + sum(position.size for position in positions)
        if offset > self._missing[file] or (last and offset < self._missing[file]):
            problem = f"its chunks have {offset} bytes, its entry {self._missing[file]}"
            raise chunks.bad_recipe_error(file, problem)
        missing = self._assemblies[file].add_chunks(positions)
        self.reused_chunks += len(recipe) - len(missing)
        return missing

    def receive(self, messages: Sequence[ContentsMessage]) -> int:
        """Verify and store contents, each message completely or not at all.

        Return the bytes that were received so far. Raise Invalid.
        """
        for message in messages:
            contents = split(message)  # before the sizes are used, because they may be wrong
            self._files.reserve.require(sum(message.sizes))
            positions = (
                chunks.find_needed_positions(self._files, contents) if self._recipe_bytes else []
            )
            positions = [position for position in positions if position.file in self._assemblies]
            covered = (
                chunks.find_covered_by_file_hash(positions, self._assemblies) - self._missing.keys()
            )
            verify(pair for pair in contents if pair[0] not in covered)
            self._incoming_names.update(
                self._new_directories.store(self._select_requested(contents))
            )
            by_digest = dict(contents)
            for file, needed in chunks.group_by_file(positions):
                self._activate(file)
                chunks.write_chunks(self._files, needed, by_digest, self._assemblies[file])
            self._count_received(sum(message.sizes))
        self._new_directories.record()
        return self.received_bytes

    def _activate(self, file: bytes) -> None:
        """Mark a large file as most recently used, and free the buffers of the least recently used one."""
        self._active.pop(file, None)
        self._active[file] = None
        if len(self._active) > MAX_ACTIVE_ASSEMBLIES:
            oldest = next(iter(self._active))
            del self._active[oldest]
            chunks.flush(self._files, self._assemblies[oldest])

    def _count_received(self, size: int) -> None:
        before, self.received_bytes = self.received_bytes, self.received_bytes + size
        threshold = ASSEMBLY_SYNC_BYTES if self._active else SYNC_BYTES
        if before // threshold != self.received_bytes // threshold:
            self._files.incoming.sync_early(list(map(partial_name, self._active)))

    def _select_requested(self, contents: Iterable[tuple[bytes, memoryview]]) -> Iterator[Content]:
        """Yield the requested contents.

        If two contents have the same path, the second one goes to `incoming`, because threads may store both at once.
        """
        assigned = set[str]()
        for digest, content in contents:
            size = self._missing.get(digest)
            if size is None or size > MAX_UNCHUNKED_BYTES:
                continue
            if size != len(content):
                raise bad_contents_error(
                    f"{digest.hex()} has {len(content)} bytes, its entry says {size}"
                )
            targets: list[Entry] = []
            for entry in self._targets.pop(digest, ()):
                if entry.path in assigned:
                    self._needed_elsewhere.add(digest)
                else:
                    assigned.add(entry.path)
                    targets.append(entry)
            yield Content(digest, content, targets, digest in self._needed_elsewhere)
            self._needed_elsewhere.discard(digest)
            del self._missing[digest]

    def commit(self, base: int, author: Author, *, allow_many_removals: bool) -> Revision:
        """Commit the push as a revision. If this raises Conflict or Invalid, nothing has changed."""
        files = self._files
        apply.apply_pending(files)
        newest = files.index.newest_revision()
        if newest.number != base:
            raise revision_conflict_error(base, newest.number)
        if self._new_directories.is_used:
            files.incoming.sync_early()  # while the change is validated
        staging.stage_requested(files.index, self._number)
        if not staging.normalize(files.index, allow_many_removals=allow_many_removals):
            self._drop_unused()
            return newest
        revision = commit_staged(
            files, author, ReceivedContents(self._new_directories, self._assemblies)
        )
        self._drop_unused()
        return revision

    def _drop_unused(self) -> None:
        """Delete contents of interrupted pushes that this push did not need."""
        with suppress(OSError, sqlite3.Error):  # the garbage collection tries again
            garbage.delete_incoming(self._files)

    def close(self) -> None:
        """Forget the requested changes. Contents that arrived are kept for the next attempt."""
        for file, assembly in self._assemblies.items():
            with suppress(OSError, sqlite3.Error):  # unrecorded chunks are sent again
                chunks.flush(self._files, assembly)
            self._files.release_assembly(file, assembly.abandon)
        self._sources.close()
        self._new_directories.close()
        staging.drop_requested(self._files.index, self._number)


def revision_conflict_error(base: int, newest: int) -> Conflict:
    return Conflict(
        f"the newest revision is {newest}, the changes were computed against {base}; compare again",
        reason="REVISION_CHANGED",
    )
