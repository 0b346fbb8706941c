"""Creates a store from the database URL in the settings."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.store.base import Store
from hai_backend.store.memory.store import MemoryStore
from hai_backend.store.sql.databases.sqlite import SqliteDatabase
from hai_backend.store.sql.store import SqlStore

_FORMS = "sqlite:///path/to/file.db, postgresql://user@host/database or memory:"


def open_store(url: str, epoch: int | None = None) -> Store:
    """Create the store for a URL. The caller must then call `store.open()`. Raises Invalid for an unsupported URL.

    A server passes the `epoch` in which it leads. The store refuses its writes (Deposed) once another server leads
    in a later epoch. Without an epoch, this server is the only one that uses the store.
    """
    if url == "memory:":
        return MemoryStore()
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _invalid("is not an address") from None
    if parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return SqlStore(SqliteDatabase(Path(str(parsed.database))))
    if parsed.drivername in ("postgresql", "postgresql+asyncpg"):
        # imported here, because servers on SQLite may run without asyncpg
        from hai_backend.store.sql.databases.postgres import PostgresDatabase

        return SqlStore(PostgresDatabase(parsed, epoch))
    raise _invalid(f"of kind {parsed.drivername!r} is not supported as it stands")


def _invalid(problem: str) -> Invalid:
    # The message does not repeat the address, because it may contain a password.
    return Invalid((Violation("store", f"the given store {problem}; use {_FORMS}"),))
