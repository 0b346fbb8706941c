"""The database session of an election. The lock of a leader ends with its session, which has its own connection.

Every statement has a time limit. If a machine fails, the database ends the session within seconds. The connection must
not go through PgBouncer, which drops the settings below even in session mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import make_url

from hai_backend.server.election.next_action import LeaderState

LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised by the first statement after an interrupted one
)
"""The errors that a method of Session raises if the session is lost."""

_TIMEOUT_SECONDS = 2.0
_LOCK = 0x6861696C  # "hail" in ASCII; migrations use another lock
_SETTINGS = {
    "application_name": "hai-leader",
    "synchronous_commit": "off",  # renewals must not wait for a slow disk; a database that crashes may lose them
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
}
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_READ_STATE = f"""
    SELECT epoch, address, backend, renewed_at,
           (SELECT pid FROM pg_locks
             WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = {_LOCK}
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holder,
           {_NOW} AS now
      FROM leader"""
# This is one statement, because a server that is paused between two statements would hold the lock without its address
# in the row. FOR UPDATE waits for writes of the previous leader. The UPDATE of a renewal does not wait for writes.
_TAKE = f"""
    WITH tried AS MATERIALIZED (SELECT pg_try_advisory_lock({_LOCK}) AS taken),
         locked_row AS MATERIALIZED (SELECT leader.id FROM leader, tried WHERE tried.taken FOR UPDATE OF leader)
    UPDATE leader SET epoch = epoch + 1, address = $1, backend = pg_backend_pid(), renewed_at = {_NOW}
      FROM locked_row WHERE leader.id = locked_row.id RETURNING epoch"""
_RENEW = f"""
    UPDATE leader SET renewed_at = {_NOW} WHERE epoch = $1 AND backend = pg_backend_pid() RETURNING epoch"""
_RESIGN = "UPDATE leader SET address = '' WHERE epoch = $1 AND backend = pg_backend_pid()"


class Session:
    """One connection to the database, created by `open_session`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def read_state(self) -> tuple[LeaderState, float]:
        """Return the row with the holder of the lock, and the time of the database."""
        row = dict(await self._execute(_READ_STATE))
        now = row.pop("now")
        return LeaderState(**row), now

    async def take(self, address: str) -> int | None:
        """Become the leader. Return the new epoch, or None if another server holds the lock.

        Waits for writes of the previous leader.
        """
        row = await self._execute(_TAKE, address)
        return None if row is None else int(row["epoch"])

    async def renew(self, epoch: int) -> bool:
        """Renew the row of the leader. Return False if another server leads."""
        return await self._execute(_RENEW, epoch) is not None

    async def oust(self, backend: int) -> None:
        """End the session of a silent leader, and thus its lock."""
        await self._execute("SELECT pg_terminate_backend($1)", backend)

    async def resign(self, epoch: int) -> None:
        """Clear the address in the row. Followers then need not wait until the leader is silent."""
        await self._execute(_RESIGN, epoch)

    async def _execute(self, statement: str, *values: object) -> Any:
        return await self._connection.fetchrow(statement, *values, timeout=_TIMEOUT_SECONDS)


@asynccontextmanager
async def open_session(url: str, on_lost: Callable[[], None]) -> AsyncIterator[Session]:
    """Open a session. `on_lost` is called as soon as the database or the network ends it. Raises one of LOST."""
    # SQLAlchemy parses the address, as for the store; asyncpg does not accept a password with a slash.
    parsed_url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        connection = await asyncpg.connect(parsed_url, server_settings=_SETTINGS)
    connection.add_termination_listener(lambda _: on_lost())
    try:
        yield Session(connection)
    finally:
        connection.terminate()  # does not wait; the database ends the session when it notices the closed connection
