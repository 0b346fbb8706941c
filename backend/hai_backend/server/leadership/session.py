"""The session that holds the lock: one connection of its own, so the lock lives as long as it does, and no longer.

Every statement has a time limit, and the database drops the session of a machine that has vanished within seconds.
PgBouncer must not stand in between: it drops our settings even where it pools by session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import make_url

from hai_backend.server.leadership.decide import Seen

LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a statement after one that was interrupted by a pause
)
"""What a look or an act raises when the session is of no more use."""

_ANSWER_SECONDS = 2.0
_LOCK = 0x6861696C  # "hail": beside the one of migrations
_SETTINGS = {
    "application_name": "hai-leader",
    "synchronous_commit": "off",  # a slow disk deposes nobody; what is lost with a crash of the database was no write
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
}
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_LOOK = f"""
    SELECT epoch, address, backend, renewed_at,
           (SELECT pid FROM pg_locks
             WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = {_LOCK}
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holder,
           {_NOW} AS now
      FROM leader"""
# One statement: a server that is paused between lock and row would hold the one without showing in the other.
# FOR UPDATE waits for writes of the leader before; the plain UPDATE of a renewal does not wait for its own.
_TAKE = f"""
    WITH tried AS MATERIALIZED (SELECT pg_try_advisory_lock({_LOCK}) AS mine),
         held AS MATERIALIZED (SELECT leader.id FROM leader, tried WHERE tried.mine FOR UPDATE OF leader)
    UPDATE leader SET epoch = epoch + 1, address = $1, backend = pg_backend_pid(), renewed_at = {_NOW}
      FROM held WHERE leader.id = held.id RETURNING epoch"""
_RENEW = f"""
    UPDATE leader SET renewed_at = {_NOW} WHERE epoch = $1 AND backend = pg_backend_pid() RETURNING epoch"""
_RESIGN = "UPDATE leader SET address = '' WHERE epoch = $1 AND backend = pg_backend_pid()"


class Session:
    """Made by `connected`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def look(self) -> tuple[Seen, float]:
        """The row, the holder of the lock, and what the database's clock shows."""
        row = dict(await self._ask(_LOOK))
        now = row.pop("now")
        return Seen(**row), now

    async def take(self, address: str) -> int | None:
        """Lead: the new epoch, or None when somebody was faster. Waits for writes of the leader before."""
        row = await self._ask(_TAKE, address)
        return None if row is None else int(row["epoch"])

    async def renew(self, epoch: int) -> bool:
        """Say that we are alive; False when another leads."""
        return await self._ask(_RENEW, epoch) is not None

    async def oust(self, backend: int) -> None:
        """End the session of a silent leader, and with it its lock."""
        await self._ask("SELECT pg_terminate_backend($1)", backend)

    async def resign(self, epoch: int) -> None:
        """Lead no longer; followers need not wait. The lock goes with the session."""
        await self._ask(_RESIGN, epoch)

    async def _ask(self, statement: str, *values: object) -> Any:
        return await self._connection.fetchrow(statement, *values, timeout=_ANSWER_SECONDS)


@asynccontextmanager
async def connected(url: str, lost: Callable[[], None]) -> AsyncIterator[Session]:
    """A session; `lost` is told as soon as the database or the network has ended it. Raises one of LOST."""
    # read as the store reads it: asyncpg takes no password with a slash
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    async with asyncio.timeout(_ANSWER_SECONDS):
        connection = await asyncpg.connect(plain, server_settings=_SETTINGS)
    connection.add_termination_listener(lambda _: lost())
    try:
        yield Session(connection)
    finally:
        connection.terminate()  # never waits; the database ends the session when it reads the end of the stream
