"""Deletes what is no longer needed: old revisions, contents that only they had, and leftovers of interrupted pushes."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from hai_backend.workspaces import checkouts
from hai_backend.workspaces.files import WorkspaceFiles, now_ns
from hai_backend.workspaces.push.staging import PROGRAMS

# how long contents of an interrupted push are kept for the next attempt
INCOMING_RETENTION_SECONDS = 24 * 3600.0
# Servers of older versions delete tagged revisions, too
_ORPHANED_TAGS = "DELETE FROM tags WHERE revision NOT IN (SELECT number FROM revisions)"
_OLD_REVISIONS = """DELETE FROM revisions WHERE number < :floor
    AND number NOT IN (SELECT revision FROM tags UNION ALL SELECT value FROM json_each(:pinned))"""
_FREQUENT_REVISIONS = """DELETE FROM revisions WHERE author = :programs AND created_at < :settled AND number < :last
    AND number NOT IN (SELECT MAX(number) FROM revisions GROUP BY CAST(created_at / :hour AS INTEGER))
    AND number NOT IN (SELECT revision FROM tags UNION ALL SELECT value FROM json_each(:pinned))"""
_OLD_ENTRIES = """DELETE FROM entries WHERE gone != 0
    AND NOT EXISTS (SELECT 1 FROM revisions WHERE number >= born AND number < gone)"""
_UNREFERENCED = """SELECT digest FROM objects o WHERE NOT EXISTS (
    SELECT 1 FROM entries e WHERE e.kind = 1 AND e.digest = o.digest)"""
_UNREFERENCED_CHUNKS = """DELETE FROM chunks WHERE file NOT IN (SELECT digest FROM entries WHERE kind = 1)
    AND hex(file) NOT IN (SELECT upper(value) FROM json_each(?))"""


@dataclass(frozen=True, slots=True)
class Collected:
    """The numbers of deleted revisions, and of deleted contents that no revision had any more."""

    revisions: int
    contents: int


def collect(
    files: WorkspaceFiles,
    *,
    pinned: Collection[int],
    running: Collection[int],
    before: float,
    min_revisions: int = 1,
    thin_before: float = 0.0,
) -> Collected:
    """Deletes revisions that were replaced before the time `before`, unless a task pins them or a tag names them.

    At least `min_revisions` of the newest are retained, because clocks may be wrong. Of the revisions that contain what
    programs wrote before `thin_before`, only the last one of each hour is retained. `running`: unfinished tasks; the
    directories of other tasks are cleaned up. No push may run meanwhile.
    """
    parameters = {
        "floor": _floor(files, before, min_revisions),
        "pinned": json.dumps(sorted(pinned)),
        "programs": PROGRAMS,
        "settled": thin_before,
        "last": files.index.newest().number - min_revisions + 1,
        "hour": 3600.0,
    }
    with files.index.transaction() as db:
        db.execute(_ORPHANED_TAGS)
        revisions = db.execute(_OLD_REVISIONS, parameters).rowcount
        revisions += db.execute(_FREQUENT_REVISIONS, parameters).rowcount
        db.execute(_OLD_ENTRIES)
    contents = _drop_objects(files)
    drop_incoming(files, before=now_ns() / 1e9 - INCOMING_RETENTION_SECONDS)
    checkouts.remove_hidden(files)
    for task in checkouts.tasks_with_directory(files):
        if task not in running:
            checkouts.remove_unchanged(files, task)
    return Collected(revisions, contents)


def _floor(files: WorkspaceFiles, before: float, min_revisions: int) -> int:
    """Returns the oldest retained revision: the state at `before`, so that every later state can be restored."""
    query = "SELECT COALESCE(MAX(number), 0) FROM revisions WHERE created_at <= ?"
    old = int(files.index.rows(query, (before,))[0][0])
    return min(old, files.index.newest().number - min_revisions + 1)


def _drop_objects(files: WorkspaceFiles) -> int:
    """Deletes unreferenced objects, rows last: a file without a row would never be deleted. Returns their number."""
    unreferenced = [row[0] for row in files.index.rows(_UNREFERENCED)]
    for digest in unreferenced:
        files.objects.remove(digest.hex())
    with files.index.transaction() as db:
        db.executemany("DELETE FROM objects WHERE digest = ?", ((d,) for d in unreferenced))
    return len(unreferenced)


def drop_incoming(files: WorkspaceFiles, *, before: float = inf) -> None:
    """Deletes what interrupted pushes brought before a time, except files that a push assembles. No push may run."""
    active = files.active_assemblies()
    for name in files.incoming.names():
        if name.partition(".")[0] in active:
            continue
        with suppress(FileNotFoundError):
            if os.stat(name, dir_fd=files.incoming.folder).st_mtime < before:
                files.incoming.remove(name)
    incomplete = [
        name.partition(".")[0] for name in files.incoming.names() if name.endswith(".part")
    ]
    with files.index.transaction() as db:
        db.execute(_UNREFERENCED_CHUNKS, (json.dumps(incomplete),))
