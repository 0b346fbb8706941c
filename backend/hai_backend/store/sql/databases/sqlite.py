"""SQLite: one writer thread that commits queued commands in batches, several reader threads, one server per file.

While a commit waits for the disk, the commands of the next batch gather in the queue. If the store is idle, a command
is committed at once. Readers have connections of their own and, in WAL mode, neither block the writer nor wait for it.
aiosqlite is not used, because it switches threads once per statement. This module switches threads once per batch.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event

from hai_backend.domain.errors import Unavailable
from hai_backend.store.migrations import upgrade
from hai_backend.store.sql.bulk import BulkWriter
from hai_backend.store.sql.commands import BATCH_LIMIT, Command, QueuedCommand, set_results
from hai_backend.store.sql.databases.errors import is_database_failure, translate_error
from hai_backend.store.sql.transaction import Runs, Transaction
from hai_backend.store.sql.writes import execute_all

Result = TypeVar("Result")

_READERS = 4
_MANY = 8  # after a batch of at least this size, callers will probably send more commands soon
_WAIT_ROUNDS, _WAIT_SECONDS = 8, 0.004  # the longest wait for callers is 8 times 4 ms
_NEVER = sys.maxsize  # value of `_expected_commands` if the writer does not wait for callers
_PRAGMAS = ("synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON", "cache_size=-16000")
# temp_store keeps the journal of a statement with many rows in memory. wal_autocheckpoint makes checkpoints rare, so
# that a page that changes often is rarely written to the database file. The WAL then takes 16 MB.
_WRITER_PRAGMAS = ("journal_mode=WAL", "temp_store=MEMORY", "wal_autocheckpoint=4000")


class SqliteDatabase:
    """The database file at `path`, which is created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()  # all names of a file must use the same lock
        self._file_id = (0, 0)
        self._writer = _make_engine(self._path, "BEGIN IMMEDIATE", (*_WRITER_PRAGMAS, *_PRAGMAS))
        self._reader = _make_engine(self._path, "BEGIN", (*_PRAGMAS, "query_only=ON"))
        self._bulk = BulkWriter(self._writer.dialect)
        self._runs: Runs = {}
        self._queue: SimpleQueue[QueuedCommand | None] = SimpleQueue()
        self._expected_commands = _NEVER
        self._expected_arrived = Event()
        self._lock = -1
        self._open = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        try:
            await self._loop.run_in_executor(self._pool, self._prepare)
        except Exception as error:
            self._release()
            raise translate_error(error, str(self._path), "opening") from error
        self._writer_ended = self._loop.create_future()
        self._open = True
        Thread(target=self._write_batches, name="store-writer", daemon=True).start()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._queue.put(None)
        await self._writer_ended
        self._release()

    async def read(self, query: Callable[[Connection], Result]) -> Result:
        self._require_open()
        return await self._loop.run_in_executor(self._pool, self._read, query)

    async def write(self, command: Command) -> Any:
        self._require_open()
        future: asyncio.Future[object] = self._loop.create_future()
        self._queue.put(QueuedCommand(command, future))
        if self._queue.qsize() >= self._expected_commands:
            self._expected_arrived.set()
        return await future

    async def require_leader(self) -> None:
        """Do nothing, because no other server can use the locked file."""

    def _require_open(self) -> None:
        if not self._open:
            raise Unavailable(f"the store {self._path} is closed")

    def _prepare(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self._path)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # it contains token hashes
        self._file_id = _file_id(self._path)
        with self._writer.begin() as connection:
            upgrade(connection)

    def _release(self) -> None:
        self._pool.shutdown()
        self._reader.dispose()
        self._writer.dispose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self, query: Callable[[Connection], Result]) -> Result:
        try:
            with self._reader.begin() as connection:
                return query(connection)
        except Exception as error:
            raise translate_error(error, str(self._path), "reading") from error

    def _write_batches(self) -> None:
        """Commit batches until the store is closed. Runs in the writer thread."""
        batch = self._next_batch()
        while batch:
            results = self._commit([queued.command for queued in batch])
            self._expected_arrived.clear()
            if len(batch) >= _MANY:
                self._expected_commands = len(batch) + self._queue.qsize()
            self._call_in_loop(set_results, list(zip(batch, results, strict=True)))
            if len(batch) >= _MANY:
                self._wait_for_callers()
            batch = self._next_batch()
        self._call_in_loop(self._writer_ended.set_result, None)

    def _wait_for_callers(self) -> None:
        """Wait until all callers have sent their next command, or until no more commands arrive.

        A commit of fifty commands takes no longer than a commit of one. While this thread waits, it does not compete
        with the event loop for the interpreter lock.
        """
        previous_size = 0
        for _ in range(_WAIT_ROUNDS):
            all_arrived, size = self._expected_arrived.wait(_WAIT_SECONDS), self._queue.qsize()
            if all_arrived or 0 < size == previous_size:
                break
            previous_size = size
        self._expected_commands = _NEVER

    def _next_batch(self) -> list[QueuedCommand]:
        """Wait for commands and return all queued ones. Return an empty list when the store is closed."""
        batch: list[QueuedCommand] = []
        while (queued := self._queue.get()) is not None:
            batch.append(queued)
            if self._queue.empty() or len(batch) == BATCH_LIMIT:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _commit(self, commands: list[Command]) -> list[object]:
        """Return the result or the error of each command. If a batch fails, try each command alone."""
        try:
            self._require_file()
            with self._writer.begin() as connection:
                transaction = Transaction(connection, self._bulk, self._runs)
                results = execute_all(transaction, commands)
            transaction.commit_runs()
        except Exception as error:
            if len(commands) == 1 or is_database_failure(error):
                return [translate_error(error, str(self._path), "writing") for _ in commands]
            return [self._commit([command])[0] for command in commands]
        return results

    def _require_file(self) -> None:
        """Raise Unavailable if the file was removed. Writes to it would be lost at the end of this process."""
        if _file_id(self._path) != self._file_id:
            raise Unavailable(
                f"the database {self._path} was removed or replaced while this server had it open: nothing is "
                "written any more; put the right file there, and start the server anew",
                reason="STORE_REPLACED",
            )

    def _call_in_loop(self, callback: Callable[[Any], object], argument: object) -> None:
        with suppress(RuntimeError):  # raised if the loop is closed, and then no caller waits
            self._loop.call_soon_threadsafe(callback, argument)


def _lock(database: Path) -> int:
    """Lock the file `<database>.lock` and return its descriptor. The lock ends when the descriptor is closed.

    Without the lock, two servers on one database would start the same tasks. The system releases the lock when the
    process ends for any reason.
    """
    path = database.with_name(database.name + ".lock")
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(descriptor, 20, 0).decode() or "unknown"
        os.close(descriptor)
        raise Unavailable(
            f"the database {database} is in use by another server (process {process});"
            " stop that one, or give this one another path",
            reason="STORE_IN_USE",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _file_id(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _make_engine(path: Path, begin: str, pragmas: tuple[str, ...]) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=_READERS)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        # Disables implicit transactions of sqlite3, which would begin only at the first write.
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
