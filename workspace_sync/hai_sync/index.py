"""Stores the state between two syncs: files as of the last scan, and the base of the last sync.

There is one SQLite file per workspace, outside of its tree. It may be deleted at any time: files are then hashed
again, and without a base no file counts as removed. A corrupt file is moved aside and created again.

The tables: `seen` has the local files, `base` the tree of both sides after the last sync, `theirs` the paths where
the remote tree differs from the base, `left_out` the ignored paths.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree
from hai_sync.core.names import is_text
from hai_sync.file_fingerprint import DIRECTORY_FINGERPRINT, LAYOUT, Fingerprint

_DIRECTORY = int(Kind.DIRECTORY)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen(path TEXT PRIMARY KEY, signature BLOB, digest BLOB, target TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS base(path TEXT PRIMARY KEY, kind INT, digest BLOB, size INT, executable INT,
    target TEXT, mtime_ns INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS theirs(path TEXT PRIMARY KEY, kind INT, digest BLOB, size INT, executable INT,
    target TEXT, mtime_ns INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS left_out(path TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""


def build_entry(fingerprint: Fingerprint, digest: bytes, target: str) -> Entry:
    """Return the entry of a path from its fingerprint, digest and link target."""
    if fingerprint == DIRECTORY_FINGERPRINT:
        return DIRECTORY
    size, mtime_ns, _, _, mode = LAYOUT.unpack(fingerprint)
    if stat.S_ISLNK(mode):
        return Entry(Kind.SYMLINK, target=target)
    return Entry(Kind.FILE, digest, size, bool(mode & 0o100), mtime_ns=max(0, mtime_ns))


def _matches(entry: Entry, fingerprint: Fingerprint, digest: bytes) -> bool:
    """Return whether an entry is equal to the one of a fingerprint and a digest, and can be reused."""
    if (
        entry.kind is not Kind.FILE
        or entry.digest != digest
        or fingerprint == DIRECTORY_FINGERPRINT
    ):
        return entry is DIRECTORY and fingerprint == DIRECTORY_FINGERPRINT
    size, mtime_ns, _, _, mode = LAYOUT.unpack(fingerprint)
    return bool(
        size == entry.size
        and mtime_ns == entry.mtime_ns
        and bool(mode & 0o100) is entry.executable
        and not stat.S_ISLNK(mode)
    )


def is_corruption(error: sqlite3.DatabaseError) -> bool:
    """Return whether an error means that the file is corrupt. For a full disk SQLite raises a subclass."""
    return type(error) is sqlite3.DatabaseError


class Index:
    """The index of one workspace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as error:
            if not is_corruption(error):
                raise
            self._move_aside()
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        """Open the file and create missing tables. Raises sqlite3.DatabaseError."""
        db = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_SCHEMA)
        # reads the schema, which raises if the file is corrupt
        db.execute("SELECT * FROM facts").fetchall()
        return db

    def recreate(self) -> None:
        """Move the corrupt file aside and create an empty one."""
        self._db.close()
        self._move_aside()
        self._db = self._open()

    def _move_aside(self) -> None:
        os.replace(self._path, self._path.with_suffix(".damaged"))
        for suffix in ("-wal", "-shm"):  # otherwise SQLite would read them into the new file
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        self._db.close()

    def name(self) -> str:
        """Return the random name of this index. Two accounts that share a workspace have different names."""
        if not (name := self.fact("name")):
            name = os.urandom(16).hex()
            self.set_facts(name=name)
        return name

    def begin(self) -> None:
        """Start a transaction, which `commit` or `rollback` ends."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, unless SQLite has already done so, as on a full disk."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def fingerprints(self) -> dict[str, Fingerprint]:
        return dict(self._db.execute("SELECT path, signature FROM seen"))

    def entries(self, reusable: Tree) -> dict[str, Entry]:
        """Return the entries of the last scan. Equal entries of `reusable` are shared, which saves memory."""
        found: dict[str, Entry] = {}
        for path, fingerprint, digest, target in self._db.execute("SELECT * FROM seen"):
            shared = reusable.get(path)
            if shared is None or not _matches(shared, fingerprint, digest):
                shared = build_entry(fingerprint, digest, target)
            found[path] = shared
        return found

    def save_scan(
        self,
        entries: Mapping[str, Entry],
        fingerprints: Mapping[str, Fingerprint],
        removed: Iterable[str],
    ) -> None:
        """Save a scan in the caller's transaction, without files whose content is unknown."""
        rows = (  # a generator, because there may be hundreds of thousands
            (path, fingerprints[path], entry.digest, entry.target)
            for path, entry in sorted(entries.items(), key=itemgetter(0))
            if entry.hashed and entry.kind is not Kind.PROBLEM and path in fingerprints
        )
        self._db.executemany("DELETE FROM seen WHERE path = ?", _path_rows(removed))
        self._db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", rows)

    def save_ignored(self, paths: Set[str]) -> None:
        """Save the paths that a full scan ignored. Directories end with a slash, and nothing below them is listed."""
        before = set(self._db.execute("SELECT path FROM left_out"))
        now = set(_path_rows(paths))
        if before != now:
            with self.transaction():
                self._db.executemany("DELETE FROM left_out WHERE path = ?", before - now)
                self._db.executemany("INSERT INTO left_out VALUES (?)", now - before)

    def base(self) -> dict[str, Entry]:
        """Return the tree that both sides had after the last sync."""
        return {path: entry for path, entry in self._rows("base") if entry is not None}

    def remote(self, base: Tree) -> Tree:
        """Return the remote tree as of the last sync. It is `base` itself if they are equal, as they mostly are."""
        remote_differences = list(self._rows("theirs"))
        if not remote_differences:
            return base
        found = dict(base)
        for path, entry in remote_differences:
            if entry is None:
                found.pop(path, None)
            else:
                found[path] = entry
        return found

    def remote_differences(self) -> set[str]:
        """Return the paths where the remote tree differs from the base."""
        return {row[0] for row in self._db.execute("SELECT path FROM theirs")}

    def _rows(self, table: str) -> Iterator[tuple[str, Entry | None]]:
        """Yield the paths and entries of a table. A removed path has no entry."""
        rows = self._db.execute(
            f"SELECT path, kind, digest, size, executable, target, mtime_ns FROM {table}"
        )
        # calling the enum would take longer than all other steps
        kinds = {int(kind): kind for kind in Kind}
        for path, kind, digest, size, executable, target, mtime_ns in rows:
            if kind == _DIRECTORY:
                yield path, DIRECTORY
            elif kind:
                yield path, Entry(kinds[kind], digest, size, bool(executable), target, mtime_ns)
            else:
                yield path, None

    def save_base(self, paths: Set[str], new: Tree, remote: Tree) -> None:
        """Save the base and the remote tree at some paths, in the caller's transaction."""
        rows = (_row(path, new[path]) for path in sorted(paths) if path in new)
        removed = _path_rows(path for path in paths if path not in new)
        resolved = ((path,) for path in self.remote_differences() & paths)
        remote_differences = (_row(p, e) for p in paths if (e := remote.get(p)) != new.get(p))
        self._db.executemany("DELETE FROM base WHERE path = ?", removed)
        self._db.executemany("INSERT OR REPLACE INTO base VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany("DELETE FROM theirs WHERE path = ?", resolved)
        self._db.executemany("INSERT INTO theirs VALUES (?, ?, ?, ?, ?, ?, ?)", remote_differences)

    def clear_base(self) -> None:
        """Delete the record of all syncs. Only the root to which the index belongs stays recorded."""
        with self.transaction():
            for table in ("base", "theirs"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM facts WHERE name != 'root'")

    def fact(self, name: str, default: str = "") -> str:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else default

    def set_facts(self, **facts: str) -> None:
        with self.transaction():
            self.put_facts(facts)

    def put_facts(self, facts: Mapping[str, str]) -> None:
        """Set facts in the caller's transaction."""
        self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _path_rows(paths: Iterable[str]) -> Iterator[tuple[str]]:
    """Yield parameter rows of paths. Names that are not UTF-8 are never stored."""
    return ((path,) for path in paths if is_text(path))


def _row(path: str, entry: Entry | None) -> Sequence[object]:
    if entry is None:
        return (path, 0, b"", 0, 0, "", 0)
    return (
        path,
        int(entry.kind),
        entry.digest,
        entry.size,
        int(entry.executable),
        entry.target,
        entry.mtime_ns,
    )
