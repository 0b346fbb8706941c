"""What programs wrote into the tree, found by a walk over it and made a revision.

What is no file, directory or link that stays inside, or has a name that is no path here, is passed over and told.
What is private to each side is not there for us: a revision that has it is followed by one that has not, and the files
stay. Where the kernel told which paths have changed, only these are looked at. Where storage is slow many directories
are looked at at a time; the index is asked here alone.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from hai_backend.domain.workspace import (
    Entry,
    EntryKind,
    PassedOver,
    Revision,
    entry_problem,
    folders_above,
    joined,
)
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.index import FIELDS, Index
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage.directory_scan import DirectoryScan, Fresh, Part, Seen
from hai_backend.workspaces.storage.file_stat import GRANULE_NS
from hai_backend.workspaces.storage.workers import NAME_SECONDS, NAMES, Workers, parts

_EVENT_GRANULE_NS = 20_000_000  # of storage that tells of changes, which is of this machine: two ticks of a slow clock
_KNOWN = """SELECT e.name, kind, executable, e.size, e.mtime_ns, digest, target,
    s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns
    FROM entries e LEFT JOIN stats s ON s.folder = e.folder AND s.name = e.name
    WHERE e.folder = ? AND gone = 0"""
_KNOWN_NAMES = f"{_KNOWN} AND e.name IN (SELECT value FROM json_each(?))"
_IS_DIRECTORY = f"""SELECT 1 FROM entries
    WHERE folder = ? AND name = ? AND gone = 0 AND kind = {int(EntryKind.DIRECTORY)}"""
_BELOW = f"""SELECT folder, name, {FIELDS} FROM entries
    WHERE gone = 0 AND (folder = :path OR (folder > :path || '/' AND folder < :path || '0'))"""


def look(
    files: Files,
    author: Author,
    passed_over: PassedOver | None = None,
    paths: Collection[str] | None = None,
) -> Revision:
    """The newest revision, after what is on storage now has become part of it; `passed_over` takes what cannot.

    `paths`: the kernel has told of these, and nothing else has changed but what lies below them.
    """
    apply.apply(files)
    with closing(
        Workers(lambda: DirectoryScan(files.folders()), NAME_SECONDS, files.storage)
    ) as hands:
        walk = _Walk(files, hands, passed_over or PassedOver(), paths)
        staging.stage(files.index, walk.changes())
    changed = staging.settle(files.index)
    newest = staging.commit(files.index, author, found=True) if changed else files.index.newest()
    walk.keep_stats()  # not before: a stat vouches for the digest that the newest revision has
    return newest


class _Walk:
    def __init__(
        self,
        files: Files,
        hands: Workers[DirectoryScan],
        passed_over: PassedOver,
        paths: Collection[str] | None,
    ) -> None:
        self._files = files
        self._hands = hands
        self._passed_over = passed_over
        self._stats: list[tuple[Any, ...]] = []
        self._granule_ns = GRANULE_NS if paths is None else _EVENT_GRANULE_NS
        # directories; with names: only these in it
        self._waiting = deque[tuple[str, Sequence[str] | None]]([("", None)])
        if paths is not None:
            self._waiting = deque(_by_folder(files.index, paths).items())
        self._begun = deque[tuple[Part, Future[Seen]]]()

    def changes(self) -> Iterator[list[Entry]]:
        """Folder by folder, what is not as the index has it."""
        while self._waiting or self._begun:
            while self._waiting and len(self._begun) < self._hands.ahead:
                self._begun.append(self._begin(*self._waiting.popleft()))
            if changed := self._folder(*self._begun.popleft()):
                yield changed

    def _begin(self, folder: str, names: Sequence[str] | None) -> tuple[Part, Future[Seen]]:
        if names is None:
            rows = self._files.index.rows(_KNOWN, (folder,))
        else:
            rows = self._files.index.rows(_KNOWN_NAMES, (folder, json.dumps(names)))
        known = {row[0]: row for row in rows}
        most = NAMES if self._hands.ahead > 1 else sys.maxsize
        part = Part(folder, known, most, names, self._granule_ns)
        return part, self._hands.begin(DirectoryScan.look, part)

    def keep_stats(self) -> None:
        with self._files.index.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?, ?)", self._stats)

    def _folder(self, part: Part, first: Future[Seen]) -> list[Entry]:
        changed: list[Entry] = []
        inner: list[str] = []
        stats: list[tuple[Any, ...]] = []
        for seen in self._all(part, first):
            for path, problem in seen.passed_over:
                self._passed_over.add(path, problem)
            if seen.lost:
                return []
            stats += seen.stats
            inner += seen.inner
            self._add(changed, part.folder, seen.fresh)
        self._waiting += ((path, None) for path in inner)
        self._stats += stats
        for row in part.known.values():
            changed += self._gone(part.folder, row)
        return changed

    def _all(self, part: Part, first: Future[Seen]) -> Iterator[Seen]:
        seen = first.result()
        yield seen
        rest = (part._replace(names=names) for names in parts(seen.rest, NAMES))
        yield from self._hands.each(DirectoryScan.look, rest)

    def _add(self, changed: list[Entry], folder: str, all_fresh: list[Fresh]) -> None:
        for row, known, entry in all_fresh:
            if entry is None:
                changed += self._gone(folder, row)
                continue
            kind = known.kind if known is not None else EntryKind.NONE
            if kind is EntryKind.DIRECTORY and entry.kind is not kind:
                changed += self._below(entry.path)
            if not entry_problem(entry):
                changed.append(entry)

    def _gone(self, folder: str, row: Any) -> Iterator[Entry]:
        path = joined(folder, row[0])
        if row[1] == EntryKind.DIRECTORY:
            yield from self._below(path)
        yield Entry(path, EntryKind.NONE)

    def _below(self, path: str) -> Iterator[Entry]:
        for row in self._files.index.rows(_BELOW, {"path": path}):
            yield Entry(joined(row[0], row[1]), EntryKind.NONE)


def _by_folder(index: Index, paths: Collection[str]) -> dict[str, Sequence[str]]:
    """Names by directory. A directory that the index does not have is looked at as a whole."""
    directories: dict[str, bool] = {}

    def is_directory(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if path not in directories:
            directories[path] = bool(index.rows(_IS_DIRECTORY, (folder, name)))
        return directories[path]

    found = defaultdict[str, dict[str, None]](dict)
    for path in sorted(filter(_is_text, paths)):
        new = (above for above in folders_above(path) if not is_directory(above))
        folder, _, name = next(new, path).rpartition("/")
        found[folder][name] = None
    return {folder: list(names) for folder, names in found.items()}


def _is_text(path: str) -> bool:
    """What is none has no place in a revision."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
