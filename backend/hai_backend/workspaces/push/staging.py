"""What a push wants to change, put together and judged before anything is touched.

All of it is SQL over `staged`, so that a change of 200 000 paths costs no memory.
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
from hai_backend.workspaces.index import FIELDS, Index, row_of

PROGRAMS = "tasks"  # author of what programs wrote
MANY = 10  # removals of files that are never guarded
_TOLD = 100  # violations in one answer
_FILE, _DIRECTORY = int(EntryKind.FILE), int(EntryKind.DIRECTORY)
_STAGED = f"INSERT OR REPLACE INTO staged(folder, name, {FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_WANTED = f"INSERT OR REPLACE INTO wanted(push, folder, name, {FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NOW = "e.folder = s.folder AND e.name = s.name AND e.gone = 0"
_FIELDS_OF_W = ", ".join(f"w.{field}" for field in FIELDS.split(", "))
_FIELDS_OF_E = ", ".join(f"e.{field}" for field in FIELDS.split(", "))
_SAME = """e.kind = s.kind AND e.executable = s.executable
    AND e.digest IS s.digest AND e.target = s.target"""


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a revision, and when."""

    name: str
    now: float


def want(index: Index, push: int, entries: Iterable[Entry]) -> None:
    """Add to what a push wants. Raises Invalid with every entry that may not be."""
    entries = list(entries)
    refuse([(entry.path, problem) for entry in entries if (problem := pushed_problem(entry))])
    with index.transaction() as db:
        db.executemany(_WANTED, ((push, *row_of(entry)) for entry in entries))


def forget(index: Index, push: int) -> None:
    """The push is over."""
    with index.transaction() as db:
        db.execute("DELETE FROM wanted WHERE push = ?", (push,))


def stage_wanted(index: Index, push: int) -> None:
    """What a push wants is the change now."""
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
    """These are the change now; we made them ourselves."""
    with index.transaction() as db:
        db.execute("DELETE FROM staged")
        for page in pages:
            db.executemany(_STAGED, map(row_of, page))


def refuse(wrong: list[tuple[str, str]]) -> None:
    """Raise Invalid when anything is."""
    if wrong:
        told = [Violation(path[:200], problem) for path, problem in wrong[:_TOLD]]
        if len(wrong) > _TOLD:
            told.append(Violation("", f"and {len(wrong) - _TOLD} more paths"))
        raise Invalid(tuple(told), reason="BAD_PATHS")


def settle(index: Index, *, allow_many_removals: bool = True) -> int:
    """Leave out what changes nothing, add directories that are meant, and check the tree that comes of it.

    Answers how many changes there are. Raises Invalid, or Conflict MANY_REMOVALS.
    """
    with index.transaction() as db:
        _add_folders(db)
        refuse([*_in_no_directory(db), *_over_directories(db)])
        _keep_full_directories(db)
        db.execute(
            f"DELETE FROM staged AS s WHERE EXISTS (SELECT 1 FROM entries e WHERE {_NOW} AND {_SAME})"
        )
        db.execute(
            f"DELETE FROM staged AS s WHERE kind = 0 AND NOT EXISTS (SELECT 1 FROM entries e WHERE {_NOW})"
        )
        if not allow_many_removals:
            _guard(db)
        return int(db.execute("SELECT COUNT(*) FROM staged").fetchone()[0])


def _kind_after(db: sqlite3.Connection, path: str) -> int | None:
    """What a path will be; None: nothing, and nobody said so."""
    folder, _, name = path.rpartition("/")
    staged = db.execute(
        "SELECT kind FROM staged WHERE folder = ? AND name = ?", (folder, name)
    ).fetchone()
    if staged is not None:
        return int(staged[0])
    query = "SELECT kind FROM entries WHERE folder = ? AND name = ? AND gone = 0"
    found = db.execute(query, (folder, name)).fetchone()
    return int(found[0]) if found else None


def _folders(db: sqlite3.Connection) -> list[str]:
    """Every directory that something is put into, outer first."""
    found = {row[0] for row in db.execute("SELECT DISTINCT folder FROM staged WHERE kind != 0")}
    found |= {above for folder in found for above in folders_above(folder)}
    return sorted(found - {""})


def _add_folders(db: sqlite3.Connection) -> None:
    missing = [path for path in _folders(db) if _kind_after(db, path) in (None, 0)]
    db.executemany(_STAGED, (row_of(Entry(path, EntryKind.DIRECTORY)) for path in missing))


def _in_no_directory(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for path in _folders(db):
        if _kind_after(db, path) != _DIRECTORY:
            yield path, "is to be a file or link, and a directory with something in it"


def _over_directories(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Files and links that take the place of a directory in which something stays."""
    query = f"""SELECT s.folder, s.name FROM staged s CROSS JOIN entries e ON {_NOW}
        WHERE e.kind = {_DIRECTORY} AND s.kind NOT IN (0, {_DIRECTORY})"""
    for folder, name in db.execute(query).fetchall():
        path = joined(folder, name)
        if _holds_something(db, path):
            yield path, "is a directory with something in it, which the change must remove first"


def _holds_something(db: sqlite3.Connection, path: str) -> bool:
    query = """SELECT 1 FROM entries e WHERE e.folder = ? AND e.gone = 0 AND NOT EXISTS (
        SELECT 1 FROM staged s WHERE s.folder = e.folder AND s.name = e.name AND s.kind = 0) LIMIT 1"""
    return db.execute(query, (path,)).fetchone() is not None


def _keep_full_directories(db: sqlite3.Connection) -> None:
    """A removed directory that still holds something stays: a client may not know all of it. Inner ones first."""
    query = f"""SELECT s.folder, s.name FROM staged s CROSS JOIN entries e ON {_NOW}
        WHERE s.kind = 0 AND e.kind = {_DIRECTORY} ORDER BY s.folder DESC, s.name DESC"""
    for folder, name in db.execute(query).fetchall():
        if _holds_something(db, joined(folder, name)):
            db.execute("DELETE FROM staged WHERE folder = ? AND name = ?", (folder, name))


def _guard(db: sqlite3.Connection) -> None:
    query = f"SELECT COUNT(*) FROM staged s CROSS JOIN entries e ON {_NOW} WHERE s.kind = 0 AND e.kind != {_DIRECTORY}"
    removed = db.execute(query).fetchone()[0]
    if removed <= MANY:
        return
    query = f"SELECT COUNT(*) FROM entries WHERE gone = 0 AND kind != {_DIRECTORY}"
    files = db.execute(query).fetchone()[0]
    if 2 * removed > files:
        raise Conflict(
            f"{removed} of {files} files would be removed, which is more than half; "
            "nothing was changed. Allow it when it is meant",
            reason="MANY_REMOVALS",
        )


def commit(index: Index, author: Author, *, found: bool = False) -> Revision:
    """Make the staged change a revision, durable on return, and note what is to be done to the files.

    `found`: they are so already. Nothing here looks at more than what changes.
    """
    with index.transaction(durable=True) as db:
        revision = _revision(db, index.newest(), author)
        if not found:
            _note_work(db)
        _take_over(db, revision.number)
        db.execute("DELETE FROM staged")
    return revision


def _revision(db: sqlite3.Connection, before: Revision, author: Author) -> Revision:
    """Never older than the one before it, whatever the clock says: those before what is old are forgotten."""
    changed, removed, files, size = db.execute(f"""SELECT COALESCE(SUM(kind != 0), 0),
        COALESCE(SUM(kind = 0), 0), COALESCE(SUM(kind = {_FILE}), 0), COALESCE(SUM(size), 0)
        FROM staged""").fetchone()
    old_files, old_size = db.execute(f"""SELECT COUNT(*), COALESCE(SUM(e.size), 0)
        FROM staged s CROSS JOIN entries e ON {_NOW} WHERE e.kind = {_FILE}""").fetchone()
    revision = Revision(
        number=before.number + 1,
        created_at=max(author.now, before.created_at),
        author=author.name,
        changed=changed,
        removed=removed,
        files=before.files + files - old_files,
        size_bytes=before.size_bytes + size - old_size,
    )
    *facts, _ = astuple(revision)  # tags come later
    db.execute("INSERT INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?)", facts)
    return revision


def _note_work(db: sqlite3.Connection) -> None:
    """Files that are laid out come with their directory, as they are."""
    db.execute(f"""INSERT INTO pending
        SELECT s.folder, s.name, s.kind, s.executable, s.size, s.mtime_ns, s.digest, s.target,
          COALESCE(s.source, s.laid), COALESCE(e.kind, 0), e.digest
        FROM staged s LEFT JOIN entries e ON {_NOW} WHERE s.laid IS NULL OR s.kind = {_DIRECTORY}""")
    db.execute(f"""INSERT OR REPLACE INTO stats
        SELECT folder, name, l.size, l.mtime_ns, l.ino, l.ctime_ns, l.seen_ns
        FROM staged s CROSS JOIN laid l USING (folder, name) WHERE s.kind = {_FILE} AND l.push = s.laid""")
    db.execute(f"""INSERT OR IGNORE INTO objects
        SELECT e.digest, e.size FROM staged s CROSS JOIN entries e ON {_NOW} WHERE e.kind = {_FILE}""")


def _take_over(db: sqlite3.Connection, number: int) -> None:
    """The join begins with what is staged: in SQLite that is what CROSS means."""
    db.execute(
        f"""INSERT OR REPLACE INTO entries(folder, name, born, gone, {FIELDS})
        SELECT e.folder, e.name, e.born, ?, {_FIELDS_OF_E} FROM staged s CROSS JOIN entries e ON {_NOW}""",
        (number,),
    )
    db.execute(
        f"""INSERT INTO entries(folder, name, born, gone, {FIELDS})
        SELECT folder, name, ?, 0, {FIELDS} FROM staged WHERE kind != 0""",
        (number,),
    )
