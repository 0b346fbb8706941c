"""Deletes old revisions, contents that no other revision has, and leftovers of interrupted pushes."""

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

# How long contents of an interrupted push are kept for the next attempt
INCOMING_RETENTION_SECONDS = 24 * 3600.0
# Older versions of the server delete tagged revisions, but not their tags.
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
    """Delete revisions that were replaced before the time `before`, unless a task pins them or a tag names them.

    At least the newest `min_revisions` are retained, because clocks may be wrong. Among revisions that programs made
    before `thin_before`, only the last one of each hour is retained. The directories of tasks that are not in `running`
    are cleaned up. No push may run meanwhile.
    """
    parameters = {
        "floor": _find_floor(files, before, min_revisions),
        "pinned": json.dumps(sorted(pinned)),
        "programs": PROGRAMS,
        "settled": thin_before,
        "last": files.index.newest_revision().number - min_revisions + 1,
        "hour": 3600.0,
    }
    with files.index.transaction() as db:
        db.execute(_ORPHANED_TAGS)
        revisions = db.execute(_OLD_REVISIONS, parameters).rowcount
        revisions += db.execute(_FREQUENT_REVISIONS, parameters).rowcount
        db.execute(_OLD_ENTRIES)
    contents = _delete_unreferenced_objects(files)
    delete_incoming(files, before=now_ns() / 1e9 - INCOMING_RETENTION_SECONDS)
    checkouts.remove_hidden(files)
    for task in checkouts.list_tasks_with_directory(files):
        if task not in running:
            checkouts.remove_unchanged(files, task)
    return Collected(revisions, contents)


def _find_floor(files: WorkspaceFiles, before: float, min_revisions: int) -> int:
    """Return the oldest revision to retain: the state at `before`, so that every later state can be restored."""
    query = "SELECT COALESCE(MAX(number), 0) FROM revisions WHERE created_at <= ?"
    old = int(files.index.fetch_rows(query, (before,))[0][0])
    return min(old, files.index.newest_revision().number - min_revisions + 1)


def _delete_unreferenced_objects(files: WorkspaceFiles) -> int:
    """Delete unreferenced objects, and return their number. Rows are deleted last: files without a row would stay."""
    unreferenced = [row[0] for row in files.index.fetch_rows(_UNREFERENCED)]
    for digest in unreferenced:
        files.objects.remove(digest.hex())
    with files.index.transaction() as db:
        db.executemany("DELETE FROM objects WHERE digest = ?", ((d,) for d in unreferenced))
    return len(unreferenced)


def delete_incoming(files: WorkspaceFiles, *, before: float = inf) -> None:
    """Delete contents that interrupted pushes brought before a time. No push may commit meanwhile.

    Files that a push is assembling are kept.
    """
    active = files.active_assemblies()
    for name in files.incoming.list_names():
        if name.partition(".")[0] in active:
            continue
        with suppress(FileNotFoundError):
            if os.stat(name, dir_fd=files.incoming.folder).st_mtime < before:
                files.incoming.remove(name)
    incomplete = [
        name.partition(".")[0] for name in files.incoming.list_names() if name.endswith(".part")
    ]
    with files.index.transaction() as db:
        db.execute(_UNREFERENCED_CHUNKS, (json.dumps(incomplete),))
