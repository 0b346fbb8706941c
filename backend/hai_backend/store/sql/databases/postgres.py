"""PostgreSQL through asyncpg: one writer task that commits queued commands in batches, and a pool of readers.

The functions that build statements get a synchronous Connection, as on SQLite; `run_sync` provides it. Each read sees
one snapshot (REPEATABLE READ), because a task consists of rows of three tables.

Each connection is checked before it is used. A lost connection is replaced. If a connection breaks during a write, the
caller gets Unavailable and does not know whether the write was committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from weakref import WeakSet

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import URL, Connection, event, func, select, text
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from hai.client.connection.cancellation import CancelledWithin, cancelled_only_from_outside
from hai_backend.domain.errors import Unavailable
from hai_backend.store.migrations import upgrade
from hai_backend.store.single_flight import SingleFlight
from hai_backend.store.sql.bulk import BulkWriter
from hai_backend.store.sql.commands import BATCH_LIMIT, Command, QueuedCommand, set_results
from hai_backend.store.sql.databases.errors import is_database_failure, translate_error
from hai_backend.store.sql.transaction import Runs, Transaction, check_epoch
from hai_backend.store.sql.writes import execute_all
from hai_backend.store.tables.cluster import LEADER

Result = TypeVar("Result")

_READERS = 4
_SETTINGS = {"application_name": "hai-server", "jit": "off", "statement_timeout": "60s"}
# A server that stalls within a transaction must not keep its locks, because the next leader waits for them.
_WRITER_SETTINGS = {**_SETTINGS, "idle_in_transaction_session_timeout": "2s"}
# An index of a large table takes minutes to build. The wait for another server that migrates may take as long.
_MIGRATION_SETTINGS = {**_SETTINGS, "statement_timeout": "0"}
# A migration that waits for a table lock blocks all later users of the table. It must not wait for a long pg_dump.
_LIMIT_LOCK_WAIT = text("SET LOCAL lock_timeout = '30s'")
_COMMAND_SECONDS = 60.0
_CACHED_STATEMENTS = 500  # per connection: inserts of 1 to 64 rows into several tables
_CLOSE_SECONDS = 2.0  # limits how long an unreachable database delays the end of the server
# "hai" in ASCII. Because of this lock, servers that start at the same time migrate one after another.
_MIGRATION_LOCK = 0x686169
_LOST_CONNECTION = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised if the server closes the connection during the ping
    OSError,
    TimeoutError,
)


class PostgresDatabase:
    """The database at `url`. Writes belong to `epoch` (see transaction.py)."""

    def __init__(self, url: URL, epoch: int | None = None) -> None:
        self._url = url
        self._address = url.render_as_string(hide_password=True)
        self._epoch = epoch
        self._writer = _make_engine(url, 1, "READ COMMITTED", _WRITER_SETTINGS)
        self._reader = _make_engine(url, _READERS, "REPEATABLE READ", _SETTINGS)
        self._connections: WeakSet[Any] = WeakSet()
        for engine in (self._writer, self._reader):
            event.listen(engine.sync_engine, "connect", self._add_connection)
        self._bulk = BulkWriter(self._writer.dialect)
        self._runs: Runs = {}
        self._queue: asyncio.Queue[QueuedCommand | None] = asyncio.Queue()
        self._writer_task: asyncio.Task[None] | None = None
        self._epoch_check = SingleFlight(self._check_epoch)

    async def open(self) -> None:
        engine = _make_engine(self._url, 1, "READ COMMITTED", _MIGRATION_SETTINGS, None)
        try:
            async with engine.begin() as connection:
                await connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                await connection.execute(_LIMIT_LOCK_WAIT)
                await connection.run_sync(upgrade)
        except Exception as error:
            raise translate_error(error, self._address, "opening") from error
        finally:
            await engine.dispose()
        self._writer_task = asyncio.create_task(self._write_batches(), name="store-writer")

    async def close(self) -> None:
        if self._writer_task is None:
            return
        task, self._writer_task = self._writer_task, None
        self._queue.put_nowait(None)
        await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        task.cancel()
        await asyncio.wait({task})
        await self._epoch_check.close()
        for connection in self._connections:
            connection.terminate()  # a regular close would wait for an answer of the database
        await self._reader.dispose()
        await self._writer.dispose()

    def _add_connection(self, connection: Any, _record: object) -> None:
        self._connections.add(connection.driver_connection)

    async def read(self, query: Callable[[Connection], Result]) -> Result:
        self._require_open()
        try:
            async with self._reader.begin() as connection:
                return await connection.run_sync(query)
        except Exception as error:
            raise translate_error(error, self._address, "reading") from error

    async def write(self, command: Command) -> Any:
        self._require_open()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(QueuedCommand(command, future))
        return await future

    async def require_leader(self) -> None:
        if self._epoch is not None:
            await self._epoch_check.run()

    async def _check_epoch(self) -> None:
        newest = await self.read(lambda connection: connection.scalar(select(LEADER.c.epoch)))
        check_epoch(self._epoch, newest)

    def _require_open(self) -> None:
        if self._writer_task is None:
            raise Unavailable(f"the store {self._address} is closed")

    async def _write_batches(self) -> None:
        batch = await self._next_batch()
        try:
            while batch:
                results = await self._commit([queued.command for queued in batch])
                set_results(zip(batch, results, strict=True))
                batch = await self._next_batch()
        except asyncio.CancelledError:  # by `close`, because the database does not answer
            error = self._unknown_result("it was closed while it did not answer")
            set_results((queued, error) for queued in (*batch, *self._queued_commands()))
            raise

    def _queued_commands(self) -> Iterator[QueuedCommand]:
        while not self._queue.empty():
            if (queued := self._queue.get_nowait()) is not None:
                yield queued

    def _unknown_result(self, cause: str) -> Unavailable:
        consequence = "it may have been done or not; trying again is safe"
        return Unavailable(f"the store {self._address}: {cause}; {consequence}")

    async def _next_batch(self) -> list[QueuedCommand]:
        """Wait for commands and return all queued ones. Return an empty list when the store is closed."""
        batch: list[QueuedCommand] = []
        while (queued := await self._queue.get()) is not None:
            batch.append(queued)
            if self._queue.empty() or len(batch) == BATCH_LIMIT:
                return batch
        if batch:
            self._queue.put_nowait(None)
        return batch

    async def _commit(self, commands: list[Command]) -> list[object]:
        """Return the result or the error of each command. If a batch fails, try each command alone."""
        try:
            with cancelled_only_from_outside("a write"):
                async with self._writer.begin() as connection:
                    transaction, results = await connection.run_sync(self._execute, commands)
            transaction.commit_runs()
        except CancelledWithin:
            # The writer task must continue. Otherwise no later command would be executed.
            return [self._unknown_result("a write was broken off") for _ in commands]
        except Exception as error:
            if len(commands) == 1 or is_database_failure(error):
                return [translate_error(error, self._address, "writing") for _ in commands]
            return [(await self._commit([command]))[0] for command in commands]
        return results

    def _execute(
        self, connection: Connection, commands: list[Command]
    ) -> tuple[Transaction, list[object]]:
        transaction = Transaction(connection, self._bulk, self._runs, self._epoch)
        return transaction, execute_all(transaction, commands)


def _make_engine(
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
            "prepared_statement_cache_size": _CACHED_STATEMENTS,
        },
    )
    event.listen(engine.sync_engine, "checkout", _ping)
    return engine


def _ping(connection: Any, _record: object, _proxy: object) -> None:
    """Check a connection of the pool before it is used. If it is lost, the pool opens another one.

    SQLAlchemy's own ping begins and rolls back a transaction with asyncpg, which takes three round trips, a quarter of
    the time of a small commit. This ping takes one.
    """
    try:
        await_only(connection.driver_connection.execute("SELECT 1"))
    except _LOST_CONNECTION as error:
        raise DisconnectionError from error
