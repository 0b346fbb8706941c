"""Scans the tree for changes by programs, and commits these as a revision.

Entries that cannot be in a revision (special files, links that lead outside, invalid names) are skipped and reported.
Private entries of the server are ignored: if a revision has some, the next one does not, and the files are kept. If the
kernel reported the changed paths, only these are scanned. Where storage is slow, threads scan many directories at once;
only this module accesses the index.
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
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.index import FIELDS, Index
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage.directory_scan import (
    Difference,
    DirectoryScan,
    ScanRequest,
    ScanResult,
)
from hai_backend.workspaces.storage.file_stat import GRANULE_NS
from hai_backend.workspaces.storage.workers import (
    NAME_SECONDS,
    NAMES_PER_BATCH,
    WorkerPool,
    split_batches,
)

# Local storage, which reports changes, has a finer clock: two ticks of a slow one.
_EVENT_GRANULE_NS = 20_000_000
_RECORDED = """SELECT e.name, kind, executable, e.size, e.mtime_ns, digest, target,
    s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns
    FROM entries e LEFT JOIN stats s ON s.folder = e.folder AND s.name = e.name
    WHERE e.folder = ? AND gone = 0"""
_RECORDED_NAMES = f"{_RECORDED} AND e.name IN (SELECT value FROM json_each(?))"
_IS_DIRECTORY = f"""SELECT 1 FROM entries
    WHERE folder = ? AND name = ? AND gone = 0 AND kind = {int(EntryKind.DIRECTORY)}"""
_BELOW = f"""SELECT folder, name, {FIELDS} FROM entries
    WHERE gone = 0 AND (folder = :path OR (folder > :path || '/' AND folder < :path || '0'))"""


def scan_tree(
    files: WorkspaceFiles,
    author: Author,
    passed_over: PassedOver | None = None,
    paths: Collection[str] | None = None,
) -> Revision:
    """Commit the state of the tree, and return the newest revision. Add skipped entries to `passed_over`.

    If `paths` is not None, the kernel has reported that nothing has changed except these paths and those below them.
    """
    apply.apply_pending(files)
    with closing(
        WorkerPool(lambda: DirectoryScan(files.open_tree()), NAME_SECONDS, files.storage_speed)
    ) as pool:
        walk = _TreeWalk(files, pool, passed_over or PassedOver(), paths)
        staging.stage(files.index, walk.changes())
    changed = staging.normalize(files.index)
    newest = (
        staging.commit(files.index, author, already_on_disk=True)
        if changed
        else files.index.newest_revision()
    )
    walk.save_stats()  # only after the commit: a stat proves the digest of the newest revision
    return newest


class _TreeWalk:
    def __init__(
        self,
        files: WorkspaceFiles,
        pool: WorkerPool[DirectoryScan],
        passed_over: PassedOver,
        paths: Collection[str] | None,
    ) -> None:
        self._files = files
        self._pool = pool
        self._passed_over = passed_over
        self._stats: list[tuple[Any, ...]] = []
        self._granule_ns = GRANULE_NS if paths is None else _EVENT_GRANULE_NS
        # Directories to scan; if there are names, only these entries of a directory
        self._pending = deque[tuple[str, Sequence[str] | None]]([("", None)])
        if paths is not None:
            self._pending = deque(_group_by_directory(files.index, paths).items())
        self._started = deque[tuple[ScanRequest, Future[ScanResult]]]()

    def changes(self) -> Iterator[list[Entry]]:
        """Yield the entries that differ from the index, directory by directory."""
        while self._pending or self._started:
            while self._pending and len(self._started) < self._pool.max_pending:
                self._started.append(self._submit(*self._pending.popleft()))
            if changed := self._changes_in(*self._started.popleft()):
                yield changed

    def _submit(
        self, folder: str, names: Sequence[str] | None
    ) -> tuple[ScanRequest, Future[ScanResult]]:
        if names is None:
            rows = self._files.index.fetch_rows(_RECORDED, (folder,))
        else:
            rows = self._files.index.fetch_rows(_RECORDED_NAMES, (folder, json.dumps(names)))
        recorded = {row[0]: row for row in rows}
        limit = NAMES_PER_BATCH if self._pool.max_pending > 1 else sys.maxsize
        request = ScanRequest(folder, recorded, limit, names, self._granule_ns)
        return request, self._pool.submit(DirectoryScan.scan, request)

    def save_stats(self) -> None:
        with self._files.index.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?, ?)", self._stats)

    def _changes_in(self, request: ScanRequest, first: Future[ScanResult]) -> list[Entry]:
        """Return the changes in one directory, and append its subdirectories to the pending ones."""
        changed: list[Entry] = []
        subdirectories: list[str] = []
        stats: list[tuple[Any, ...]] = []
        for result in self._results(request, first):
            for path, problem in result.passed_over:
                self._passed_over.add(path, problem)
            if result.unreadable:
                return []
            stats += result.stats
            subdirectories += result.subdirectories
            self._add_differences(changed, request.folder, result.differences)
        self._pending += ((path, None) for path in subdirectories)
        self._stats += stats
        for row in request.recorded.values():
            changed += self._removals(request.folder, row)
        return changed

    def _results(self, request: ScanRequest, first: Future[ScanResult]) -> Iterator[ScanResult]:
        result = first.result()
        yield result
        remaining = (
            request._replace(names=names)
            for names in split_batches(result.remaining, NAMES_PER_BATCH)
        )
        yield from self._pool.map_ordered(DirectoryScan.scan, remaining)

    def _add_differences(
        self, changed: list[Entry], folder: str, differences: list[Difference]
    ) -> None:
        """Add the changes that the differences of a directory mean."""
        for row, recorded, entry in differences:
            if entry is None:
                changed += self._removals(folder, row)
                continue
            kind = recorded.kind if recorded is not None else EntryKind.NONE
            if kind is EntryKind.DIRECTORY and entry.kind is not kind:
                changed += self._descendants(entry.path)
            if not entry_problem(entry):
                changed.append(entry)

    def _removals(self, folder: str, row: Any) -> Iterator[Entry]:
        path = joined(folder, row[0])
        if row[1] == EntryKind.DIRECTORY:
            yield from self._descendants(path)
        yield Entry(path, EntryKind.NONE)

    def _descendants(self, path: str) -> Iterator[Entry]:
        for row in self._files.index.fetch_rows(_BELOW, {"path": path}):
            yield Entry(joined(row[0], row[1]), EntryKind.NONE)


def _group_by_directory(index: Index, paths: Collection[str]) -> dict[str, Sequence[str]]:
    """Group names by directory. Of a path in a new directory, the outermost new directory counts."""
    directories: dict[str, bool] = {}

    def is_directory(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if path not in directories:
            directories[path] = bool(index.fetch_rows(_IS_DIRECTORY, (folder, name)))
        return directories[path]

    grouped = defaultdict[str, dict[str, None]](dict)
    for path in sorted(filter(_is_text, paths)):
        new_directories = (parent for parent in folders_above(path) if not is_directory(parent))
        folder, _, name = next(new_directories, path).rpartition("/")
        grouped[folder][name] = None
    return {folder: list(names) for folder, names in grouped.items()}


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
