"""Commands of an operator on the SQLite database of a server that may run: a copy of it, and rows of the audit.

The copy is as of one moment, made while the server goes on writing (SQLite's online backup).
"""

from __future__ import annotations

import getpass
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from hai_backend.domain.errors import Conflict, Invalid, Unavailable, Violation

_LOCKED_SECONDS = 5.0


def backup(url: str, target: Path) -> None:
    """Write the database at `url` to a new file, whole or not at all, for its owner only. Raises HaiError."""
    source = _file(url)
    if target.exists():
        raise Conflict(f"{target} is there already; a backup overwrites nothing: choose a new name")
    part = target.with_name(target.name + ".part")
    if not target.parent.is_dir():
        raise _invalid(f"there is no directory {target.parent}")
    os.close(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))  # it holds token hashes
    try:
        _copy(source, part)
        part.rename(target)
    except sqlite3.Error as error:
        raise Unavailable(f"{source} could not be copied to {target}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def record_command(url: str, method: str, resource: str) -> None:
    """Leave a row of the audit: the user of this machine has given a command. A failure is only told.

    Not on PostgreSQL, which logs its connections itself, nor before there is a database.
    """
    try:
        path = _file(url)
    except Invalid:
        return
    row = (time.time(), f"{getpass.getuser()} (hai-server)", method, resource, "", "OK")
    names = "time, actor, method, resource, what, code"
    try:
        with closing(sqlite3.connect(path, timeout=_LOCKED_SECONDS)) as database, database:
            database.execute(f"INSERT INTO audit ({names}) VALUES (?, ?, ?, ?, ?, ?)", row)
    except sqlite3.Error as error:
        print(f"hai-server: the audit has no row of this command: {error}", file=sys.stderr)


def _file(url: str) -> Path:
    parsed = make_url(url)
    if parsed.drivername != "sqlite":
        raise _invalid(
            "--backup copies SQLite; PostgreSQL is backed up with pg_dump (docs/operate.md)"
        )
    path = Path(str(parsed.database))
    if not path.exists():
        raise _invalid(f"{path} does not exist: there is nothing to back up yet")
    return path


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as ours, closing(sqlite3.connect(target)) as copy:
        ours.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _invalid(message: str) -> Invalid:
    return Invalid((Violation("backup", message),), reason="BAD_SETTINGS")
