"""From the address in the settings to a store."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.store.base import Store
from hai_backend.store.memory.store import MemoryStore
from hai_backend.store.sql.sqlite import SqliteDatabase
from hai_backend.store.sql.store import SqlStore

_FORMS = "sqlite:///path/to/file.db, postgresql://user@host/database or memory:"


def open_store(url: str, epoch: int | None = None) -> Store:
    """The store at an address; `await store.open()` comes next. Raises Invalid for an unknown form.

    Writes are refused (Deposed) as soon as another server leads in a later epoch; None: this one has the store alone.
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
        from hai_backend.store.sql.postgres import PostgresDatabase  # a laptop never needs it

        return SqlStore(PostgresDatabase(parsed, epoch))
    raise _invalid(f"of kind {parsed.drivername!r} is not supported as it stands")


def _invalid(what: str) -> Invalid:
    # The address itself may hold a password and is not repeated.
    return Invalid((Violation("store", f"the given store {what}; use {_FORMS}"),))
