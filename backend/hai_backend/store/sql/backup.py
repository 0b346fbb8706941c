"""A copy of the SQLite database as of one moment, made while the server goes on writing (SQLite's online backup)."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from hai_backend.domain.errors import Conflict, Invalid, Unavailable, Violation


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
