"""The index of a workspace: all revisions in one SQLite file beside its files.

The file belongs to one server at a time: its lock is exclusive, and without shared memory it may be on network storage.
A row of `entries` belongs to every revision from `born` to before `gone` (0: still current), so all revisions together
cost what changed. Rows are ordered by folder, then name: parents before their entries.
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
    """Each method holds the lock for its own statements only. All of them block: call them in threads."""

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
        """Closes the file, so that another server can open it."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Runs a transaction. `durable`: it is on disk at the end; others become durable with the next durable one."""
        with self._lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rows(self, query: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Returns all rows of a query."""
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def fact(self, name: str) -> Any:
        """Returns the value of a fact; None if there is none."""
        found = self.rows("SELECT value FROM facts WHERE name = ?", (name,))
        return found[0][0] if found else None

    def set_fact(self, name: str, value: Any) -> None:
        """Stores the value of a fact, durably."""
        with self.transaction(durable=True) as db:
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def newest(self) -> Revision:
        """Returns the newest revision; NOTHING if there is none."""
        found = self.revisions(limit=1)
        return found[0] if found else NOTHING

    def revision(self, number: int) -> Revision | None:
        """Returns a revision; None if it is not retained."""
        found = self.rows(f"{_REVISION} WHERE number = ?", (number,))
        return _revision_of(found[0]) if found else None

    def revisions(
        self, *, before: int = 1 << 62, limit: int, tagged: bool = False
    ) -> list[Revision]:
        """Returns revisions, newest first; `tagged`: only those with tags."""
        condition = "AND tags IS NOT NULL" if tagged else ""
        query = f"{_REVISION} WHERE number < ? {condition} ORDER BY number DESC LIMIT ?"
        return [_revision_of(row) for row in self.rows(query, (before, limit))]

    def tree(self, revision: int) -> Generator[list[Entry]]:
        """Yields all entries of a revision in pages, ordered by folder and name."""
        return self._pages(
            f"SELECT folder, name, {FIELDS} FROM entries WHERE {_IN_REVISION}", revision
        )

    def changes(self, since: int, revision: int) -> Generator[list[Entry]]:
        """Yields in pages what differs from an earlier revision; removed paths have kind NONE."""
        query = f"""SELECT folder, name, {FIELDS} FROM entries
            WHERE {_IN_REVISION} AND born > :since
            UNION ALL
            SELECT folder, name, 0, 0, 0, 0, NULL, '' FROM entries e
            WHERE born <= :since AND gone > :since AND gone <= :revision AND NOT EXISTS (
              SELECT 1 FROM entries n WHERE n.folder = e.folder AND n.name = e.name
              AND n.born <= :revision AND (n.gone = 0 OR n.gone > :revision))"""
        return self._pages(f"SELECT * FROM ({query}) WHERE 1", revision, since)

    def _pages(self, query: str, revision: int, since: int = 0) -> Generator[list[Entry]]:
        after = {"revision": revision, "since": since, "folder": "", "name": ""}
        ordered = (
            f"{query} AND (folder, name) > (:folder, :name) ORDER BY folder, name LIMIT {PAGE_ROWS}"
        )
        while rows := self.rows(ordered, after):
            yield [entry_of(row) for row in rows]
            after |= {"folder": rows[-1][0], "name": rows[-1][1]}

    def folder(self, path: str, revision: int) -> list[Entry]:
        """Returns the entries of a directory in a revision."""
        query = f"SELECT folder, name, {FIELDS} FROM entries WHERE {_IN_REVISION}"
        found = self.rows(f"{query} AND folder = :folder", {"revision": revision, "folder": path})
        return [entry_of(row) for row in found]

    def entry(self, path: str, revision: int) -> Entry | None:
        """Returns the entry of a path in a revision."""
        query = f"SELECT folder, name, {FIELDS} FROM entries WHERE {_IN_REVISION}"
        name = path.rpartition("/")[2]
        values = {"revision": revision, "folder": folder_of(path), "name": name}
        found = self.rows(f"{query} AND folder = :folder AND name = :name", values)
        return entry_of(found[0]) if found else None


def _revision_of(row: Sequence[Any]) -> Revision:
    *columns, tags = row
    revision = Revision(*columns)
    return replace(revision, tags=tuple(sorted(tags.split("/")))) if tags else revision


def entry_of(row: Sequence[Any]) -> Entry:
    """Converts a row of folder, name and FIELDS."""
    folder, name, kind, executable, size, mtime_ns, digest, target = row
    kind, digest = EntryKind(kind), digest or b""
    return Entry(joined(folder, name), kind, bool(executable), size, mtime_ns, digest, target)


def row_of(entry: Entry) -> tuple[Any, ...]:
    """Converts to a row of folder, name and FIELDS."""
    folder, _, name = entry.path.rpartition("/")
    attributes = (int(entry.kind), int(entry.executable), entry.size, entry.mtime_ns)
    return (folder, name, *attributes, entry.digest or None, entry.target)
