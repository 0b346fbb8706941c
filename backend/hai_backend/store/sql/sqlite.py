"""SQLite: one writer thread that commits in groups, a few reader threads, one server per file.

While one commit waits for the disk, the commands of the next gather in the queue; an idle store commits at once.
Readers have connections of their own and, in WAL mode, block nobody. Threads instead of aiosqlite: one hop per batch,
not per statement. A lock on a file beside the database keeps a second server off, which would otherwise schedule the
same tasks.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

from hai_backend.domain.errors import Unavailable
from hai_backend.store.migrations import upgrade
from hai_backend.store.sql.bulk import Bulk
from hai_backend.store.sql.commands import Command
from hai_backend.store.sql.database import T
from hai_backend.store.sql.errors import concerns_all, translated
from hai_backend.store.sql.file_lock import lock
from hai_backend.store.sql.transaction import Runs, Transaction
from hai_backend.store.sql.write_queue import BATCH_LIMIT, QueuedCommand, settle
from hai_backend.store.sql.writes import apply

_READERS = 4
_CROWD = 8  # commands in one batch: so many callers will soon be back
_LOOKS, _LOOK_SECONDS = 8, 0.004
_NOBODY = sys.maxsize
_PRAGMAS = ("synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON", "cache_size=-16000")
# A statement of many rows keeps a journal of its own, else in a file; and few checkpoints write a page once for many
# changes of it. The log then takes 16 MB.
_WRITING = ("journal_mode=WAL", "temp_store=MEMORY", "wal_autocheckpoint=4000")


class SqliteDatabase:
    """The file at `path`, which is created when missing."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()  # one lock for one file, however it is called
        self._file = (0, 0)
        self._writer = _engine(self._path, "BEGIN IMMEDIATE", (*_WRITING, *_PRAGMAS))
        self._reader = _engine(self._path, "BEGIN", (*_PRAGMAS, "query_only=ON"))
        self._bulk = Bulk(self._writer.dialect)
        self._runs: Runs = {}
        self._queue: SimpleQueue[QueuedCommand | None] = SimpleQueue()
        self._expected = _NOBODY
        self._came = Event()
        self._lock = -1
        self._open = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        try:
            await self._loop.run_in_executor(self._pool, self._prepare)
        except Exception as error:
            self._release()
            raise translated(error, str(self._path), "opening") from error
        self._ended = self._loop.create_future()
        self._open = True
        Thread(target=self._work, name="store-writer", daemon=True).start()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._queue.put(None)
        await self._ended
        self._release()

    async def read(self, question: Callable[[Connection], T]) -> T:
        self._require_open()
        return await self._loop.run_in_executor(self._pool, self._read, question)

    async def write(self, command: Command) -> Any:
        self._require_open()
        future: asyncio.Future[object] = self._loop.create_future()
        self._queue.put(QueuedCommand(command, future))
        if self._queue.qsize() >= self._expected:
            self._came.set()
        return await future

    async def confirm(self) -> None:
        """The file is locked: nobody else has it."""

    def _require_open(self) -> None:
        if not self._open:
            raise Unavailable(f"the store {self._path} is closed")

    def _prepare(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = lock(self._path)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # it holds token hashes
        self._file = _file_at(self._path)
        with self._writer.begin() as connection:
            upgrade(connection)

    def _release(self) -> None:
        self._pool.shutdown()
        self._reader.dispose()
        self._writer.dispose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self, question: Callable[[Connection], T]) -> T:
        try:
            with self._reader.begin() as connection:
                return question(connection)
        except Exception as error:
            raise translated(error, str(self._path), "reading") from error

    def _work(self) -> None:
        batch = self._next_batch()
        while batch:
            outcomes = self._commit([waiting.command for waiting in batch])
            self._came.clear()
            if len(batch) >= _CROWD:
                self._expected = len(batch) + self._queue.qsize()
            self._tell(settle, list(zip(batch, outcomes, strict=True)))
            if len(batch) >= _CROWD:
                self._gather()
            batch = self._next_batch()
        self._tell(self._ended.set_result, None)

    def _gather(self) -> None:
        """Wait until all have come again, or no more come: a commit costs as much for one as for fifty.

        It also lets the event loop have the interpreter to itself: two busy threads slow each other down.
        """
        before = 0
        for _ in range(_LOOKS):
            all_came, now = self._came.wait(_LOOK_SECONDS), self._queue.qsize()
            if all_came or 0 < now == before:
                break
            before = now
        self._expected = _NOBODY

    def _next_batch(self) -> list[QueuedCommand]:
        """All that waits, at least one; nothing once the store is closed and everything is written."""
        batch: list[QueuedCommand] = []
        while (waiting := self._queue.get()) is not None:
            batch.append(waiting)
            if self._queue.empty() or len(batch) == BATCH_LIMIT:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _commit(self, commands: list[Command]) -> list[object]:
        try:
            self._require_file()
            with self._writer.begin() as connection:
                transaction = Transaction(connection, self._bulk, self._runs)
                outcomes = apply(transaction, commands)
            transaction.remember()
        except Exception as error:
            if len(commands) == 1 or concerns_all(error):
                return [translated(error, str(self._path), "writing") for _ in commands]
            return [self._commit([command])[0] for command in commands]
        return outcomes

    def _require_file(self) -> None:
        """What is written to a file that has no name any more is gone with this process."""
        if _file_at(self._path) != self._file:
            raise Unavailable(
                f"the database {self._path} was removed or replaced while this server had it open: nothing is "
                "written any more; put the right file there, and start the server anew",
                reason="STORE_REPLACED",
            )

    def _tell(self, callback: Callable[[Any], object], argument: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, argument)


def _file_at(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _engine(path: Path, begin: str, pragmas: tuple[str, ...]) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=_READERS)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        # sqlite3 must not begin transactions: it would do so too late
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
