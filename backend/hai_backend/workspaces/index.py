"""Stores the index of a workspace: all revisions in one SQLite file beside its files.

The file belongs to one server at a time. Its lock is exclusive, so SQLite needs no shared memory, and the file may be
on network storage. A row of `entries` belongs to all revisions from `born` until before `gone`, or to all later ones if
`gone` is 0. So the size of the index depends on the number of changes only. Rows are ordered by folder, then name:
parents come before their entries.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hai_backend.domain.workspace import NOTHING, Entry, EntryKind, Revision, folder_of, joined

PAGE_ROWS = 2000  # rows in memory at the same time
_ENTRY_COLUMNS = (
    "kind INTEGER, executable INTEGER, size INTEGER, mtime_ns INTEGER, digest BLOB, target TEXT"
)
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revisions(
  number INTEGER PRIMARY KEY, created_at REAL, author TEXT,
  changed INTEGER, removed INTEGER, files INTEGER, size_bytes INTEGER);
CREATE TABLE IF NOT EXISTS tags(name TEXT PRIMARY KEY, revision INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tags_by_revision ON tags(revision);
CREATE TABLE IF NOT EXISTS entries(
  folder TEXT, name TEXT, born INTEGER, gone INTEGER, {_ENTRY_COLUMNS},
  PRIMARY KEY(folder, name, born)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_digest ON entries(digest) WHERE kind = 1;
CREATE TABLE IF NOT EXISTS stats(
  folder TEXT, name TEXT, size INTEGER, mtime_ns INTEGER, ino INTEGER, ctime_ns INTEGER, seen_ns INTEGER,
  PRIMARY KEY(folder, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects(digest BLOB PRIMARY KEY, size INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chunks(
  digest BLOB, file BLOB, place INTEGER, size INTEGER, have INTEGER,
  PRIMARY KEY(digest, file, place)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS chunks_of_file ON chunks(file);
CREATE TABLE IF NOT EXISTS pending(
  folder TEXT, name TEXT, {_ENTRY_COLUMNS}, source TEXT, kind_before INTEGER, digest_before BLOB,
  PRIMARY KEY(folder, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkouts(
  task INTEGER PRIMARY KEY, revision INTEGER, size_bytes INTEGER, made_ns INTEGER);
CREATE TEMP TABLE staged(
  folder TEXT, name TEXT, {_ENTRY_COLUMNS}, source TEXT, laid INTEGER, PRIMARY KEY(folder, name)) WITHOUT ROWID;
CREATE TEMP TABLE wanted(
  push INTEGER, folder TEXT, name TEXT, {_ENTRY_COLUMNS}, PRIMARY KEY(push, folder, name)) WITHOUT ROWID;
CREATE TEMP TABLE laid(
  push INTEGER, folder TEXT, name TEXT, digest BLOB, executable INTEGER,
  size INTEGER, mtime_ns INTEGER, ino INTEGER, ctime_ns INTEGER, seen_ns INTEGER,
  PRIMARY KEY(push, folder, name)) WITHOUT ROWID;
"""
FIELDS = "kind, executable, size, mtime_ns, digest, target"
_IN_REVISION = "born <= :revision AND (gone = 0 OR gone > :revision)"
_REVISION = """SELECT number, created_at, author, changed, removed, files, size_bytes,
    (SELECT group_concat(name, '/') FROM tags WHERE revision = number) AS tags FROM revisions"""


class Index:
    """The open index. Each method holds a lock for its own statements only. All methods block: call them in threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA cache_size=-8000")
            self._db.executescript(_SCHEMA)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file, so that another server can open it."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction. A `durable` one is on disk at its end, together with all earlier ones."""
        with self._lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def fetch_rows(self, query: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def get_fact(self, name: str) -> Any:
        """Return a value that `set_fact` stored under a name; None if there is none."""
        rows = self.fetch_rows("SELECT value FROM facts WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def set_fact(self, name: str, value: Any) -> None:
        """Store a value under a name, durably."""
        with self.transaction(durable=True) as db:
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def newest_revision(self) -> Revision:
        """Return the newest revision; NOTHING if there is none."""
        newest = self.list_revisions(limit=1)
        return newest[0] if newest else NOTHING

    def get_revision(self, number: int) -> Revision | None:
        """Return a revision; None if it is not retained."""
        rows = self.fetch_rows(f"{_REVISION} WHERE number = ?", (number,))
        return _revision_from_row(rows[0]) if rows else None

    def list_revisions(
        self, *, before: int = 1 << 62, limit: int, tagged: bool = False
    ) -> list[Revision]:
        """Return revisions with numbers below `before`, newest first; if `tagged` is set, only those with tags."""
        condition = "AND tags IS NOT NULL" if tagged else ""
        query = f"{_REVISION} WHERE number < ? {condition} ORDER BY number DESC LIMIT ?"
        return [_revision_from_row(row) for row in self.fetch_rows(query, (before, limit))]

    def iterate_tree(self, revision: int) -> Generator[list[Entry]]:
        """Yield all entries of a revision in pages, ordered by folder and name."""
        return self._pages(
            f"SELECT folder, name, {FIELDS} FROM entries WHERE {_IN_REVISION}", revision
        )

    def iterate_changes(self, since: int, revision: int) -> Generator[list[Entry]]:
        """Yield in pages the entries that differ from those of an earlier revision. Removed paths have kind NONE."""
        query = f"""SELECT folder, name, {FIELDS} FROM entries
            WHERE {_IN_REVISION} AND born > :since
            UNION ALL
            SELECT folder, name, 0, 0, 0, 0, NULL, '' FROM entries e
            WHERE born <= :since AND gone > :since AND gone <= :revision AND NOT EXISTS (
              SELECT 1 FROM entries n WHERE n.folder = e.folder AND n.name = e.name
              AND n.born <= :revision AND (n.gone = 0 OR n.gone > :revision))"""
        return self._pages(f"SELECT * FROM ({query}) WHERE 1", revision, since)

    def _pages(self, query: str, revision: int, since: int = 0) -> Generator[list[Entry]]:
        position = {"revision": revision, "since": since, "folder": "", "name": ""}
        ordered = (
            f"{query} AND (folder, name) > (:folder, :name) ORDER BY folder, name LIMIT {PAGE_ROWS}"
        )
        while rows := self.fetch_rows(ordered, position):
            yield [entry_from_row(row) for row in rows]
            position |= {"folder": rows[-1][0], "name": rows[-1][1]}

    def list_directory(self, path: str, revision: int) -> list[Entry]:
        """Return the entries of a directory in a revision."""
        query = f"SELECT folder, name, {FIELDS} FROM entries WHERE {_IN_REVISION}"
        rows = self.fetch_rows(
            f"{query} AND folder = :folder", {"revision": revision, "folder": path}
        )
        return [entry_from_row(row) for row in rows]

    def get_entry(self, path: str, revision: int) -> Entry | None:
        """Return the entry of a path in a revision."""
        query = f"SELECT folder, name, {FIELDS} FROM entries WHERE {_IN_REVISION}"
        name = path.rpartition("/")[2]
        values = {"revision": revision, "folder": folder_of(path), "name": name}
        rows = self.fetch_rows(f"{query} AND folder = :folder AND name = :name", values)
        return entry_from_row(rows[0]) if rows else None


def _revision_from_row(row: Sequence[Any]) -> Revision:
    *columns, tags = row
    revision = Revision(*columns)
    return replace(revision, tags=tuple(sorted(tags.split("/")))) if tags else revision


def entry_from_row(row: Sequence[Any]) -> Entry:
    """Convert a row with folder, name and FIELDS to an entry."""
    folder, name, kind, executable, size, mtime_ns, digest, target = row
    kind, digest = EntryKind(kind), digest or b""
    return Entry(joined(folder, name), kind, bool(executable), size, mtime_ns, digest, target)


def row_from_entry(entry: Entry) -> tuple[Any, ...]:
    """Convert an entry to a row with folder, name and FIELDS."""
    folder, _, name = entry.path.rpartition("/")
    attributes = (int(entry.kind), int(entry.executable), entry.size, entry.mtime_ns)
    return (folder, name, *attributes, entry.digest or None, entry.target)
