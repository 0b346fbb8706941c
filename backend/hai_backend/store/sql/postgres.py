"""PostgreSQL through asyncpg: one writer task that commits in groups, a pool for readers.

Statements are the same functions over a Connection as on SQLite; `run_sync` lends them one. Readers see one snapshot
per question (REPEATABLE READ), since a task is three rows deep. A connection that was lost is found before use
(sql/connection_check.py) and replaced; a write that was under way then fails as Unavailable, and whether it was
committed is for its
guard to find out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from sqlalchemy import URL, Connection, event, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from hai.client.connection.cancellation import CancelledWithin, cancelled_only_from_outside
from hai_backend.domain.errors import Unavailable
from hai_backend.store.migrations import upgrade
from hai_backend.store.single_flight import SingleFlight
from hai_backend.store.sql.bulk import Bulk
from hai_backend.store.sql.commands import Command
from hai_backend.store.sql.connection_check import ping_before_use
from hai_backend.store.sql.database import T
from hai_backend.store.sql.errors import concerns_all, translated
from hai_backend.store.sql.transaction import Runs, Transaction, check_epoch
from hai_backend.store.sql.write_queue import BATCH_LIMIT, QueuedCommand, settle
from hai_backend.store.sql.writes import apply
from hai_backend.store.tables.server import LEADER

_READERS = 4
_SETTINGS = {"application_name": "hai-server", "jit": "off", "statement_timeout": "60s"}
# A server that is paused within a transaction must not keep its locks: the next leader waits for them.
_WRITER_SETTINGS = {**_SETTINGS, "idle_in_transaction_session_timeout": "2s"}
# An index on a large table takes minutes, and so does waiting for another server that makes it.
_MIGRATING_SETTINGS = {**_SETTINGS, "statement_timeout": "0"}
# Whoever waits for a table stops all that come later: never for as long as a dump takes.
_NOT_LONG = text("SET LOCAL lock_timeout = '30s'")
_COMMAND_SECONDS = 60.0
_STATEMENTS = 500  # kept prepared for each connection: inserts of 1 to 64 rows into some tables
_CLOSE_SECONDS = 2.0  # a database that cannot be reached does not hold up the end
_MIGRATION_LOCK = 0x686169  # "hai": two servers that start together migrate one after the other


class PostgresDatabase:
    """The database at `url`, whose tables are created when missing. Writes belong to `epoch` (see
    sql/transaction.py)."""

    def __init__(self, url: URL, epoch: int | None = None) -> None:
        self._url = url
        self._where = url.render_as_string(hide_password=True)
        self._epoch = epoch
        self._writer = _engine(url, 1, "READ COMMITTED", _WRITER_SETTINGS)
        self._reader = _engine(url, _READERS, "REPEATABLE READ", _SETTINGS)
        self._connections: WeakSet[Any] = WeakSet()
        for engine in (self._writer, self._reader):
            event.listen(engine.sync_engine, "connect", self._connected)
        self._bulk = Bulk(self._writer.dialect)
        self._runs: Runs = {}
        self._queue: asyncio.Queue[QueuedCommand | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._confirming = SingleFlight(self._check_epoch)

    async def open(self) -> None:
        migrating = _engine(self._url, 1, "READ COMMITTED", _MIGRATING_SETTINGS, None)
        try:
            async with migrating.begin() as connection:
                await connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                await connection.execute(_NOT_LONG)
                await connection.run_sync(upgrade)
        except Exception as error:
            raise translated(error, self._where, "opening") from error
        finally:
            await migrating.dispose()
        self._task = asyncio.create_task(self._work(), name="store-writer")

    async def close(self) -> None:
        if self._task is None:
            return
        task, self._task = self._task, None
        self._queue.put_nowait(None)
        await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        task.cancel()
        await asyncio.wait({task})
        await self._confirming.close()
        for connection in self._connections:
            connection.terminate()  # a farewell waits for a database that answers
        await self._reader.dispose()
        await self._writer.dispose()

    def _connected(self, connection: Any, _record: object) -> None:
        self._connections.add(connection.driver_connection)

    async def read(self, question: Callable[[Connection], T]) -> T:
        self._require_open()
        try:
            async with self._reader.begin() as connection:
                return await connection.run_sync(question)
        except Exception as error:
            raise translated(error, self._where, "reading") from error

    async def write(self, command: Command) -> Any:
        self._require_open()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(QueuedCommand(command, future))
        return await future

    async def confirm(self) -> None:
        """See store.base.Store."""
        if self._epoch is not None:
            await self._confirming.ask()

    async def _check_epoch(self) -> None:
        newest = await self.read(lambda connection: connection.scalar(select(LEADER.c.epoch)))
        check_epoch(self._epoch, newest)

    def _require_open(self) -> None:
        if self._task is None:
            raise Unavailable(f"the store {self._where} is closed")

    async def _work(self) -> None:
        batch = await self._next_batch()
        try:
            while batch:
                outcomes = await self._commit([waiting.command for waiting in batch])
                settle(zip(batch, outcomes, strict=True))
                batch = await self._next_batch()
        except asyncio.CancelledError:  # the database answers nothing, and we are closed
            why = "it was closed while it did not answer"
            settle((waiting, self._unknown(why)) for waiting in (*batch, *self._rest()))
            raise

    def _rest(self) -> Iterator[QueuedCommand]:
        while not self._queue.empty():
            if (waiting := self._queue.get_nowait()) is not None:
                yield waiting

    def _unknown(self, why: str) -> Unavailable:
        what = "it may have been done or not; trying again is safe"
        return Unavailable(f"the store {self._where}: {why}; {what}")

    async def _next_batch(self) -> list[QueuedCommand]:
        """All that waits, at least one; nothing once the store is closed and everything is written."""
        batch: list[QueuedCommand] = []
        while (waiting := await self._queue.get()) is not None:
            batch.append(waiting)
            if self._queue.empty() or len(batch) == BATCH_LIMIT:
                return batch
        if batch:
            self._queue.put_nowait(None)
        return batch

    async def _commit(self, commands: list[Command]) -> list[object]:
        try:
            with cancelled_only_from_outside("a write"):
                async with self._writer.begin() as connection:
                    transaction, outcomes = await connection.run_sync(self._apply, commands)
            transaction.remember()
        except CancelledWithin:  # or nobody would write from now on
            return [self._unknown("a write was broken off") for _ in commands]
        except Exception as error:
            if len(commands) == 1 or concerns_all(error):
                return [translated(error, self._where, "writing") for _ in commands]
            return [(await self._commit([command]))[0] for command in commands]
        return outcomes

    def _apply(
        self, connection: Connection, commands: list[Command]
    ) -> tuple[Transaction, list[object]]:
        transaction = Transaction(connection, self._bulk, self._runs, self._epoch)
        return transaction, apply(transaction, commands)


def _engine(
    url: URL,
    connections: int,
    isolation: Any,
    settings: Mapping[str, str],
    command_seconds: float | None = _COMMAND_SECONDS,
) -> AsyncEngine:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        isolation_level=isolation,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=30,
        connect_args={
            "dsn": url.set(drivername="postgresql").render_as_string(hide_password=False),
            "timeout": 10,
            "command_timeout": command_seconds,
            "server_settings": dict(settings),
            "prepared_statement_cache_size": _STATEMENTS,
        },
    )
    ping_before_use(engine)
    return engine
