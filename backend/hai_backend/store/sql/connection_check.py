"""Finds out, before a connection is used, whether it was lost meanwhile; the pool then opens another one.

SQLAlchemy's own ping on asyncpg begins a transaction and rolls it back: three round trips, a quarter of a small group
commit. This one is a single one.
"""

from __future__ import annotations

from typing import Any

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only

_LOST = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server said farewell in the middle of our question
    OSError,
    TimeoutError,
)


def ping_before_use(engine: AsyncEngine) -> None:
    """Let its pool hand out only connections that answer."""
    event.listen(engine.sync_engine, "checkout", _look)


def _look(connection: Any, _record: object, _proxy: object) -> None:
    try:
        await_only(connection.driver_connection.execute("SELECT 1"))
    except _LOST as error:
        raise DisconnectionError from error
