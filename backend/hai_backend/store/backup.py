"""Operator commands on a database that a server may be using: a backup of SQLite, and entries in the audit log."""

from __future__ import annotations

import asyncio
import getpass
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, insert, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from hai_backend.domain.errors import Conflict, Invalid, Unavailable, Violation
from hai_backend.store.tables.accounts import AUDIT

_TIMEOUT_SECONDS = 5.0


def backup(url: str, target: Path) -> None:
    """Copy the SQLite database at `url` to a new file that only its owner can read. Raises HaiError.

    The copy is consistent, even if a server writes at the same time. If the copy fails, no file is left.
    """
    source = _sqlite_file(url)
    if target.exists():
        raise Conflict(f"{target} is there already; a backup overwrites nothing: choose a new name")
    temporary = target.with_name(target.name + ".part")
    if not target.parent.is_dir():
        raise _invalid(f"there is no directory {target.parent}")
    # The mode is 0600, because the database contains hashes of tokens.
    os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
    try:
        _copy(source, temporary)
        temporary.rename(target)
    except sqlite3.Error as error:
        raise Unavailable(f"{source} could not be copied to {target}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def record_command(url: str, method: str, resource: str) -> None:
    """Record a command of the current user in the audit log, if the database exists. Print a warning on failure."""
    row = {
        "time": time.time(),
        "actor": f"{getpass.getuser()} (hai-server)",
        "method": method,
        "resource": resource,
        "what": "",
        "code": "OK",
    }
    try:
        parsed = make_url(url)
        if parsed.drivername.startswith("postgresql"):
            asyncio.run(_insert(parsed.set(drivername="postgresql+asyncpg"), row))
        elif Path(parsed.database or "").is_file():
            engine = create_engine(parsed, connect_args={"timeout": _TIMEOUT_SECONDS})
            with engine.begin() as connection:
                connection.execute(insert(AUDIT).values(row))
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        cause = getattr(error, "orig", None) or error  # without the statement and its values
        print(f"hai-server: this command is not recorded in the audit: {cause}", file=sys.stderr)


async def _insert(url: URL, row: dict[str, Any]) -> None:
    engine = create_async_engine(url, connect_args={"timeout": _TIMEOUT_SECONDS})
    try:
        async with engine.begin() as connection:
            await connection.execute(insert(AUDIT).values(row))
    finally:
        await engine.dispose()


def _sqlite_file(url: str) -> Path:
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
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(target)) as copy:
        database.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")  # so that the copy has no separate WAL file
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _invalid(message: str) -> Invalid:
    return Invalid((Violation("backup", message),), reason="BAD_SETTINGS")
