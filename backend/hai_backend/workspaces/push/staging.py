"""Stages a change of a workspace in the table `staged`, validates the change, and commits it.

Most steps are SQL over that table, so the memory depends on the number of directories, not on that of files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

from hai_backend.domain.errors import Conflict, Invalid, Violation
from hai_backend.domain.workspace import (
    Entry,
    EntryKind,
    Revision,
    folders_above,
    joined,
    pushed_problem,
)
from hai_backend.workspaces.index import FIELDS, Index, row_from_entry

PROGRAMS = "tasks"  # the author of revisions with files that programs wrote
UNGUARDED_REMOVALS = 10  # so many removals are always allowed
_MAX_VIOLATIONS = 100  # violations in one error
_FILE, _DIRECTORY = int(EntryKind.FILE), int(EntryKind.DIRECTORY)
_INSERT_STAGED = (
    f"INSERT OR REPLACE INTO staged(folder, name, {FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_REQUESTED = f"INSERT OR REPLACE INTO wanted(push, folder, name, {FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_JOIN_CURRENT = "e.folder = s.folder AND e.name = s.name AND e.gone = 0"
_FIELDS_OF_W = ", ".join(f"w.{field}" for field in FIELDS.split(", "))
_FIELDS_OF_E = ", ".join(f"e.{field}" for field in FIELDS.split(", "))
_IS_EQUAL = """e.kind = s.kind AND e.executable = s.executable
    AND e.digest IS s.digest AND e.target = s.target"""


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a revision, and the time of its creation."""

    name: str
    now: float


def add_requested(index: Index, push: int, entries: Iterable[Entry]) -> None:
    """Add entries to the requested changes of a push. Raise Invalid, which lists every entry that is not allowed."""
    entries = list(entries)
    raise_if_invalid(
        [(entry.path, problem) for entry in entries if (problem := pushed_problem(entry))]
    )
    with index.transaction() as db:
        db.executemany(_INSERT_REQUESTED, ((push, *row_from_entry(entry)) for entry in entries))


def drop_requested(index: Index, push: int) -> None:
    """Forget the requested changes of a push."""
    with index.transaction() as db:
        db.execute("DELETE FROM wanted WHERE push = ?", (push,))


def stage_requested(index: Index, push: int) -> None:
    """Stage the requested changes of a push."""
    with index.transaction() as db:
        db.execute("DELETE FROM staged")
        db.execute(
            f"""INSERT INTO staged(folder, name, {FIELDS}, laid) SELECT w.folder, w.name, {_FIELDS_OF_W}, l.push
            FROM wanted w LEFT JOIN laid l ON l.push = w.push AND l.folder = w.folder AND l.name = w.name
              AND l.digest = w.digest AND l.executable = w.executable
            WHERE w.push = ?""",
            (push,),
        )


def stage(index: Index, pages: Iterable[Iterable[Entry]]) -> None:
    """Stage changes of the server itself, which need no validation."""
    with index.transaction() as db:
        db.execute("DELETE FROM staged")
        for page in pages:
            db.executemany(_INSERT_STAGED, map(row_from_entry, page))


def raise_if_invalid(problems: list[tuple[str, str]]) -> None:
    """Raise Invalid if there are problems, which are pairs of path and message."""
    if problems:
        violations = [
            Violation(path[:200], problem) for path, problem in problems[:_MAX_VIOLATIONS]
        ]
        if len(problems) > _MAX_VIOLATIONS:
            violations.append(Violation("", f"and {len(problems) - _MAX_VIOLATIONS} more paths"))
        raise Invalid(tuple(violations), reason="BAD_PATHS")


def normalize(index: Index, *, allow_many_removals: bool = True) -> int:
    """Drop changes without effect, add missing parent directories, and validate the resulting tree.

    Return the number of changes. Raise Invalid, or Conflict MANY_REMOVALS.
    """
    with index.transaction() as db:
        _add_parents(db)
        raise_if_invalid([*_parents_not_directories(db), *_replaced_non_empty_directories(db)])
        _retain_non_empty_directories(db)
        db.execute(
            f"DELETE FROM staged AS s WHERE EXISTS (SELECT 1 FROM entries e WHERE {_JOIN_CURRENT} AND {_IS_EQUAL})"
        )
        db.execute(
            f"DELETE FROM staged AS s WHERE kind = 0 AND NOT EXISTS (SELECT 1 FROM entries e WHERE {_JOIN_CURRENT})"
        )
        if not allow_many_removals:
            _check_removals(db)
        return int(db.execute("SELECT COUNT(*) FROM staged").fetchone()[0])


def _kind_after(db: sqlite3.Connection, path: str) -> int | None:
    """Return the kind of a path after the change: 0 if the change removes it, None if neither has the path."""
    folder, _, name = path.rpartition("/")
    staged = db.execute(
        "SELECT kind FROM staged WHERE folder = ? AND name = ?", (folder, name)
    ).fetchone()
    if staged is not None:
        return int(staged[0])
    query = "SELECT kind FROM entries WHERE folder = ? AND name = ? AND gone = 0"
    current = db.execute(query, (folder, name)).fetchone()
    return int(current[0]) if current else None


def _parents(db: sqlite3.Connection) -> list[str]:
    """Return the directories that contain a staged entry, parents before children."""
    parents = {row[0] for row in db.execute("SELECT DISTINCT folder FROM staged WHERE kind != 0")}
    parents |= {above for folder in parents for above in folders_above(folder)}
    return sorted(parents - {""})


def _add_parents(db: sqlite3.Connection) -> None:
    """Stage the parent directories that would not exist after the change."""
    missing = [path for path in _parents(db) if _kind_after(db, path) in (None, 0)]
    db.executemany(
        _INSERT_STAGED, (row_from_entry(Entry(path, EntryKind.DIRECTORY)) for path in missing)
    )


def _parents_not_directories(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield each parent that is not a directory after the change, with the problem."""
    for path in _parents(db):
        if _kind_after(db, path) != _DIRECTORY:
            yield path, "is a file or link, but the change adds entries below it"


def _replaced_non_empty_directories(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield each file or link that replaces a directory which still has entries after the change."""
    query = f"""SELECT s.folder, s.name FROM staged s CROSS JOIN entries e ON {_JOIN_CURRENT}
        WHERE e.kind = {_DIRECTORY} AND s.kind NOT IN (0, {_DIRECTORY})"""
    for folder, name in db.execute(query).fetchall():
        path = joined(folder, name)
        if _has_entries_after_change(db, path):
            yield path, "is a directory that is not empty; the change must remove its entries first"


def _has_entries_after_change(db: sqlite3.Connection, path: str) -> bool:
    query = """SELECT 1 FROM entries e WHERE e.folder = ? AND e.gone = 0 AND NOT EXISTS (
        SELECT 1 FROM staged s WHERE s.folder = e.folder AND s.name = e.name AND s.kind = 0) LIMIT 1"""
    return db.execute(query, (path,)).fetchone() is not None


def _retain_non_empty_directories(db: sqlite3.Connection) -> None:
    """Cancel the removal of directories that still have entries, which clients may not know. Children come first."""
    query = f"""SELECT s.folder, s.name FROM staged s CROSS JOIN entries e ON {_JOIN_CURRENT}
        WHERE s.kind = 0 AND e.kind = {_DIRECTORY} ORDER BY s.folder DESC, s.name DESC"""
    for folder, name in db.execute(query).fetchall():
        if _has_entries_after_change(db, joined(folder, name)):
            db.execute("DELETE FROM staged WHERE folder = ? AND name = ?", (folder, name))


def _check_removals(db: sqlite3.Connection) -> None:
    """Raise Conflict if more than half of all files would be removed."""
    query = f"""SELECT COUNT(*) FROM staged s CROSS JOIN entries e ON {_JOIN_CURRENT}
        WHERE s.kind = 0 AND e.kind != {_DIRECTORY}"""
    removed = db.execute(query).fetchone()[0]
    if removed <= UNGUARDED_REMOVALS:
        return
    query = f"SELECT COUNT(*) FROM entries WHERE gone = 0 AND kind != {_DIRECTORY}"
    files = db.execute(query).fetchone()[0]
    if 2 * removed > files:
        raise Conflict(
            f"{removed} of {files} files would be removed, which is more than half; "
            "nothing was changed. Allow it if this is intended",
            reason="MANY_REMOVALS",
        )


def commit(index: Index, author: Author, *, already_on_disk: bool = False) -> Revision:
    """Commit the staged change as a revision, durably, and record the work that remains on the files.

    With `already_on_disk`, the files match the change already. The cost depends on the size of the change only.
    """
    with index.transaction(durable=True) as db:
        revision = _insert_revision(db, index.newest_revision(), author)
        if not already_on_disk:
            _add_pending(db)
        _update_entries(db, revision.number)
        db.execute("DELETE FROM staged")
    return revision


def _insert_revision(db: sqlite3.Connection, previous: Revision, author: Author) -> Revision:
    """Insert the revision. Its time is never before that of the previous one, because deletion goes by time."""
    changed, removed, files, size = db.execute(f"""SELECT COALESCE(SUM(kind != 0), 0),
        COALESCE(SUM(kind = 0), 0), COALESCE(SUM(kind = {_FILE}), 0), COALESCE(SUM(size), 0)
        FROM staged""").fetchone()
    old_files, old_size = db.execute(f"""SELECT COUNT(*), COALESCE(SUM(e.size), 0)
        FROM staged s CROSS JOIN entries e ON {_JOIN_CURRENT} WHERE e.kind = {_FILE}""").fetchone()
    revision = Revision(
        number=previous.number + 1,
        created_at=max(author.now, previous.created_at),
        author=author.name,
        changed=changed,
        removed=removed,
        files=previous.files + files - old_files,
        size_bytes=previous.size_bytes + size - old_size,
    )
    *columns, _ = astuple(revision)  # tags are stored separately
    db.execute("INSERT INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?)", columns)
    return revision


def _add_pending(db: sqlite3.Connection) -> None:
    """Record the pending work. Files in new directories are published with their directory, unchanged."""
    db.execute(f"""INSERT INTO pending
        SELECT s.folder, s.name, s.kind, s.executable, s.size, s.mtime_ns, s.digest, s.target,
          COALESCE(s.source, s.laid), COALESCE(e.kind, 0), e.digest
        FROM staged s LEFT JOIN entries e ON {_JOIN_CURRENT} WHERE s.laid IS NULL OR s.kind = {_DIRECTORY}""")
    db.execute(f"""INSERT OR REPLACE INTO stats
        SELECT folder, name, l.size, l.mtime_ns, l.ino, l.ctime_ns, l.seen_ns
        FROM staged s CROSS JOIN laid l USING (folder, name) WHERE s.kind = {_FILE} AND l.push = s.laid""")
    db.execute(f"""INSERT OR IGNORE INTO objects
        SELECT e.digest, e.size FROM staged s CROSS JOIN entries e ON {_JOIN_CURRENT} WHERE e.kind = {_FILE}""")


def _update_entries(db: sqlite3.Connection, number: int) -> None:
    """Update `entries`. The joins start at `staged`: SQLite never reorders a CROSS JOIN."""
    db.execute(
        f"""INSERT OR REPLACE INTO entries(folder, name, born, gone, {FIELDS})
        SELECT e.folder, e.name, e.born, ?, {_FIELDS_OF_E} FROM staged s CROSS JOIN entries e ON {_JOIN_CURRENT}""",
        (number,),
    )
    db.execute(
        f"""INSERT INTO entries(folder, name, born, gone, {FIELDS})
        SELECT folder, name, ?, 0, {FIELDS} FROM staged WHERE kind != 0""",
        (number,),
    )
