"""What is remembered between two runs: the files as they were last seen, and the base of the last sync.

One SQLite file per workspace, outside of it. It can be lost at any time: files are hashed again then,
and without a base nothing is ever taken for removed. A damaged one is moved aside and begun anew.
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
from hai_sync.file_fingerprint import DIRECTORY_SIGNATURE, PACK, Signature

_FOLDER = int(Kind.DIRECTORY)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen(path TEXT PRIMARY KEY, signature BLOB, digest BLOB, target TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS base(path TEXT PRIMARY KEY, kind INT, digest BLOB, size INT, executable INT,
    target TEXT, mtime_ns INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS theirs(path TEXT PRIMARY KEY, kind INT, digest BLOB, size INT, executable INT,
    target TEXT, mtime_ns INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS left_out(path TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""


def entry_of(seen: Signature, digest: bytes, target: str) -> Entry:
    """What lies there, from its signature and what was read of it."""
    if seen == DIRECTORY_SIGNATURE:
        return DIRECTORY
    size, mtime_ns, _, _, mode = PACK.unpack(seen)
    if stat.S_ISLNK(mode):
        return Entry(Kind.SYMLINK, target=target)
    return Entry(Kind.FILE, digest, size, bool(mode & 0o100), mtime_ns=max(0, mtime_ns))


def _is_still(entry: Entry, seen: Signature, digest: bytes) -> bool:
    """Whether a file's entry is what a signature and a digest say; others are made anew."""
    if entry.kind is not Kind.FILE or entry.digest != digest or seen == DIRECTORY_SIGNATURE:
        return entry is DIRECTORY and seen == DIRECTORY_SIGNATURE
    size, mtime_ns, _, _, mode = PACK.unpack(seen)
    return bool(
        size == entry.size
        and mtime_ns == entry.mtime_ns
        and bool(mode & 0o100) is entry.executable
        and not stat.S_ISLNK(mode)
    )


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Else the disk is full, say, and it is as good as before: SQLite has names for all of that."""
    return type(error) is sqlite3.DatabaseError


class Index:
    """One workspace's memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self._move_aside()
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_SCHEMA)
        db.execute("SELECT * FROM facts").fetchall()  # few, and asked by everybody
        return db

    def begin_anew(self) -> None:
        """It turned out to be damaged."""
        self._db.close()
        self._move_aside()
        self._db = self._open()

    def _move_aside(self) -> None:
        os.replace(self._path, self._path.with_suffix(".damaged"))
        for end in ("-wal", "-shm"):  # else they would be read into the new one
            self._path.with_name(self._path.name + end).unlink(missing_ok=True)

    def close(self) -> None:
        """Done with it."""
        self._db.close()

    def name(self) -> str:
        """Made once: two memories of one workspace, as of two accounts, have two."""
        if not (name := self.fact("name")):
            name = os.urandom(16).hex()
            self.set_facts(name=name)
        return name

    def begin(self) -> None:
        """What follows is all or nothing, until `commit` or `rollback`."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """All of it."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Nothing of it. A full disk may have done so already."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def signatures(self) -> dict[str, Signature]:
        """What was seen where."""
        return dict(self._db.execute("SELECT path, signature FROM seen"))

    def entries(self, share: Tree) -> dict[str, Entry]:
        """What was seen, read as entries. Equal ones of `share` are used again, for they are many."""
        found: dict[str, Entry] = {}
        for path, seen, digest, target in self._db.execute("SELECT * FROM seen"):
            other = share.get(path)
            if other is None or not _is_still(other, seen, digest):
                other = entry_of(seen, digest, target)
            found[path] = other
        return found

    def remember(
        self, entries: Mapping[str, Entry], signatures: Mapping[str, Signature], gone: Iterable[str]
    ) -> None:
        """What was seen anew, in the caller's transaction; files whose content is unknown are not worth it."""
        rows = (  # never a list: there may be hundreds of thousands
            (path, signatures[path], entry.digest, entry.target)
            for path, entry in sorted(entries.items(), key=itemgetter(0))
            if entry.hashed and entry.kind is not Kind.PROBLEM and path in signatures
        )
        self._db.executemany("DELETE FROM seen WHERE path = ?", _keys(gone))
        self._db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", rows)

    def leave_out(self, paths: Set[str]) -> None:
        """What a whole scan left out, directories with a slash at their end; nothing below those."""
        before = set(self._db.execute("SELECT path FROM left_out"))
        now = set(_keys(paths))
        if before != now:
            with self.transaction():
                self._db.executemany("DELETE FROM left_out WHERE path = ?", before - now)
                self._db.executemany("INSERT INTO left_out VALUES (?)", now - before)

    def base(self) -> dict[str, Entry]:
        """What both sides agreed on last time."""
        return {path: entry for path, entry in self._rows("base") if entry is not None}

    def remote(self, base: Tree) -> Tree:
        """What the other side had last time; mostly the base, and then the very same."""
        theirs = list(self._rows("theirs"))
        if not theirs:
            return base
        found = dict(base)
        for path, entry in theirs:
            if entry is None:
                found.pop(path, None)
            else:
                found[path] = entry
        return found

    def theirs(self) -> set[str]:
        """Where the other side had something else than the base."""
        return {row[0] for row in self._db.execute("SELECT path FROM theirs")}

    def _rows(self, table: str) -> Iterator[tuple[str, Entry | None]]:
        rows = self._db.execute(
            f"SELECT path, kind, digest, size, executable, target, mtime_ns FROM {table}"
        )
        kinds = {int(kind): kind for kind in Kind}  # calling an enum takes longer than all the rest
        for path, kind, digest, size, executable, target, mtime_ns in rows:
            if kind == _FOLDER:
                yield path, DIRECTORY
            elif kind:
                yield path, Entry(kinds[kind], digest, size, bool(executable), target, mtime_ns)
            else:
                yield path, None

    def agree(self, paths: Set[str], new: Tree, remote: Tree) -> None:
        """Write the base and the other side's tree at some paths, in the caller's transaction."""
        rows = (_row(path, new[path]) for path in sorted(paths) if path in new)
        gone = _keys(path for path in paths if path not in new)
        settled = ((path,) for path in self.theirs() & paths)
        theirs = (_row(p, e) for p in paths if (e := remote.get(p)) != new.get(p))
        self._db.executemany("DELETE FROM base WHERE path = ?", gone)
        self._db.executemany("INSERT OR REPLACE INTO base VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany("DELETE FROM theirs WHERE path = ?", settled)
        self._db.executemany("INSERT INTO theirs VALUES (?, ?, ?, ?, ?, ?, ?)", theirs)

    def forget_base(self) -> None:
        """As if it had never been synced; whose memory it is stays known."""
        with self.transaction():
            for table in ("base", "theirs"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM facts WHERE name != 'root'")

    def fact(self, name: str, default: str = "") -> str:
        """Something else that is remembered."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else default

    def set_facts(self, **facts: str) -> None:
        """Remember something else."""
        with self.transaction():
            self.put_facts(facts)

    def put_facts(self, facts: Mapping[str, str]) -> None:
        """The same in the caller's transaction."""
        self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _keys(paths: Iterable[str]) -> Iterator[tuple[str]]:
    """Without names that are no text: no row has one."""
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
