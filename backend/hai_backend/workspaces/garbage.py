"""What nobody needs any more goes: old revisions, the contents that only they had, what broken pushes left."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from hai_backend.workspaces import checkouts, task_trees
from hai_backend.workspaces.files import Files, now_ns
from hai_backend.workspaces.push.staging import PROGRAMS

LEFT_SECONDS = 24 * 3600.0  # how long what a broken push brought waits for the next try
# A server of an older version lets go of what has a name, too
_NAMES_OF_NOTHING = "DELETE FROM tags WHERE revision NOT IN (SELECT number FROM revisions)"
_OLD_REVISIONS = """DELETE FROM revisions WHERE number < :floor
    AND number NOT IN (SELECT revision FROM tags UNION ALL SELECT value FROM json_each(:pinned))"""
_FREQUENT_REVISIONS = """DELETE FROM revisions WHERE author = :programs AND created_at < :settled AND number < :last
    AND number NOT IN (SELECT MAX(number) FROM revisions GROUP BY CAST(created_at / :hour AS INTEGER))
    AND number NOT IN (SELECT revision FROM tags UNION ALL SELECT value FROM json_each(:pinned))"""
_OLD_ENTRIES = """DELETE FROM entries WHERE gone != 0
    AND NOT EXISTS (SELECT 1 FROM revisions WHERE number >= born AND number < gone)"""
_DEAD = """SELECT digest FROM objects o WHERE NOT EXISTS (
    SELECT 1 FROM entries e WHERE e.kind = 1 AND e.digest = o.digest)"""
_DEAD_CHUNKS = """DELETE FROM chunks WHERE file NOT IN (SELECT digest FROM entries WHERE kind = 1)
    AND hex(file) NOT IN (SELECT upper(value) FROM json_each(?))"""


@dataclass(frozen=True, slots=True)
class Collected:
    """How many revisions were deleted, and how many contents of files that no revision has any more."""

    revisions: int
    contents: int


def collect(
    files: Files,
    *,
    pinned: Collection[int],
    running: Collection[int],
    before: float,
    least: int = 1,
    settled: float = 0.0,
) -> Collected:
    """Forget revisions from before a moment, unless a task pins one or a tag names it; of the newest so many stay, at
    `least` one: a clock may be wrong. Of what programs wrote before `settled`, each hour keeps its last revision.

    `running`: tasks that have not ended; directories of others are tidied. Nobody may push meanwhile.
    """
    parameters = {
        "floor": _floor(files, before, least),
        "pinned": json.dumps(sorted(pinned)),
        "programs": PROGRAMS,
        "settled": settled,
        "last": files.index.newest().number - least + 1,
        "hour": 3600.0,
    }
    with files.index.transaction() as db:
        db.execute(_NAMES_OF_NOTHING)
        revisions = db.execute(_OLD_REVISIONS, parameters).rowcount
        revisions += db.execute(_FREQUENT_REVISIONS, parameters).rowcount
        db.execute(_OLD_ENTRIES)
    contents = _drop_objects(files)
    drop_arrived(files, before=now_ns() / 1e9 - LEFT_SECONDS)
    task_trees.drop_hidden(files)
    for task in checkouts.existing(files):
        if task not in running:
            checkouts.tidy(files, task)
    return Collected(revisions, contents)


def _floor(files: Files, before: float, least: int) -> int:
    """The oldest revision that is kept: what the workspace was at `before`, so all since can be restored."""
    query = "SELECT COALESCE(MAX(number), 0) FROM revisions WHERE created_at <= ?"
    old = int(files.index.rows(query, (before,))[0][0])
    return min(old, files.index.newest().number - least + 1)


def _drop_objects(files: Files) -> int:
    """Rows last: a file without a row would stay for ever."""
    dead = [row[0] for row in files.index.rows(_DEAD)]
    for digest in dead:
        files.objects.remove(digest.hex())
    with files.index.transaction() as db:
        db.executemany("DELETE FROM objects WHERE digest = ?", ((digest,) for digest in dead))
    return len(dead)


def drop_arrived(files: Files, *, before: float = inf) -> None:
    """What a broken push brought before a moment, and no push puts together now. Nobody may push meanwhile."""
    growing = files.growing()
    for name in files.incoming.names():
        if name.partition(".")[0] in growing:
            continue
        with suppress(FileNotFoundError):
            if os.stat(name, dir_fd=files.incoming.folder).st_mtime < before:
                files.incoming.remove(name)
    parts = [name.partition(".")[0] for name in files.incoming.names() if name.endswith(".part")]
    with files.index.transaction() as db:
        db.execute(_DEAD_CHUNKS, (json.dumps(parts),))
