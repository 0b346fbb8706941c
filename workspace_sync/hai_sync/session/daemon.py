"""Keeps a workspace in sync while it runs.

Hints of local changes and new revisions of the server wake it; a full look now and then catches what no
event told. What it cannot do now (the server is away, the disk is full) it tries again, later and later.
A conflict is told and left to the user; everything else goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from hai.client.connection.backoff import delays
from hai.client.connection.cancellation import error_of
from hai.client.errors import HaiError
from hai_sync.core.rules import Mode
from hai_sync.error_mapping import failure_of
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.session import Session
from hai_sync.session.unstable_files import Unsettled
from hai_sync.watch.control import ShortPath
from hai_sync.watch.events import Events

FULL_SECONDS = 120.0
"""A full look at both sides at least this often."""

QUIET_SECONDS = 0.02
"""Changes that come so soon after one another are one sync."""

LOOK_SECONDS = 0.25
"""How often it looks whether a file that changed while it was read is quiet."""

SETTLE_SECONDS = 10.0
"""So long does a flush wait for such files; one that grows for ever must not keep anybody."""


_FAILURES = (HaiError, OSError, sqlite3.Error)
"""What may be over in a moment: the server is away, or the disk is full, which SQLite says in its own way."""


@dataclass(slots=True)
class _State:
    """What `status` tells."""

    phase: str = "starting"
    error: str = ""
    syncs: int = 0
    synced: float = 0.0
    report: Report = field(default_factory=Report)


class Daemon:
    """One workspace's."""

    def __init__(
        self,
        session: Session,
        wish: SyncOptions,
        say: Callable[[str], None],
        server: Mapping[str, str] | None = None,
    ) -> None:
        self.session = session
        self.wish = replace(wish, partial=True, resident=True, purpose="watch")
        self.events = Events(session.place.root)
        self.state = _State()
        self._say = say
        self._how = {
            "mode": wish.rules.mode.value,
            "filtered": wish.filter.is_special,
            **(server or {}),
        }
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._going = asyncio.Event()  # else it syncs only when it is asked
        self._going.set()
        self._syncing = asyncio.Lock()
        self._inode = 0  # of our socket
        self._unsettled = Unsettled(session.place.root)
        self._some_unsettled = asyncio.Event()
        self._due = False  # something may have changed
        self._look = True  # at the server's files, too

    async def run(self) -> None:
        """Until somebody says stop, or the root is gone."""
        socket = self.session.place.socket
        socket.unlink(missing_ok=True)
        with ShortPath(self.session.place.own) as path:
            server = await asyncio.start_unix_server(self._serve, path)
        os.chmod(socket, 0o600)
        self._inode = os.stat(socket).st_ino
        works: list[Coroutine[Any, Any, None]] = [
            self._local(),
            self._remote(),
            self._clock(),
            self._work(),
            self._read_again(),
            self._stopped(),
        ]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and (error := error_of(task)) is not None:
                    raise error
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._is_reached():
                socket.unlink()

    def _is_reached(self) -> bool:
        """Whether commands ask us: our socket was not removed, perhaps for another daemon."""
        with suppress(OSError):
            return os.stat(self.session.place.socket).st_ino == self._inode
        return False

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    async def _stopped(self) -> None:
        await self._stop.wait()

    async def _local(self) -> None:
        async for paths in self.events.hints():
            if paths is None:
                self.session.forget()
            else:
                self.session.hint(paths)
            self._ring()
        self._say(f"{self.session.place.root} is gone; nothing was changed on the server")

    async def _remote(self) -> None:
        if self.wish.rules.mode is Mode.PUSH:
            await self._stop.wait()
        waits = delays()
        while True:
            with suppress(HaiError):
                async for number in self.session.remote.watch():
                    waits = delays()
                    async with self._syncing:  # it may be our own, just being made
                        if number > self.session.revision:
                            self.session.moved_on()
                            self._ring()
            await asyncio.sleep(next(waits))

    async def _clock(self) -> None:
        await asyncio.sleep(FULL_SECONDS)
        while self._is_reached():
            self.session.forget()
            self._ring(look=True)
            await asyncio.sleep(FULL_SECONDS)
        self._say("its socket is gone, so that nobody could ask or stop it: it ends")

    def _ring(self, look: bool = False) -> None:
        self._due = True
        self._look = self._look or look
        self._wake.set()

    async def _work(self) -> None:
        waits = delays()
        while True:
            await self._wake.wait()
            await asyncio.sleep(QUIET_SECONDS)
            await self._going.wait()
            try:
                await self.flush()
                waits = delays()
            except _FAILURES as error:
                self._fail(error)
                await asyncio.sleep(next(waits))
                self.session.forget()
                self._ring(look=True)

    async def _read_again(self) -> None:
        """Files that changed while they were read, once they are quiet."""
        while True:
            await self._some_unsettled.wait()
            await asyncio.sleep(LOOK_SECONDS)
            if quiet := self._unsettled.take_quiet(time.monotonic()):
                self.session.hint(quiet)
                self._ring()

    async def flush(self) -> Report:
        """Sync what has changed. Raises HaiError, OSError, sqlite3.Error."""
        async with self._syncing:
            if not self._due:
                return self.state.report
            self._due = False
            self._wake.clear()
            look, self._look = self._look, False
            self.state.phase = "syncing"
            try:
                report = await self.session.sync(replace(self.wish, look=look))
            except BaseException:
                self._due, self._look = True, True
                raise
            self._done(report)
            return report

    def _done(self, report: Report) -> None:
        state = self.state
        state.phase, state.error = "watching", ""
        state.syncs, state.synced, state.report = state.syncs + 1, time.time(), report
        self._unsettled.replace(report.unsettled, time.monotonic())
        (self._some_unsettled.set if report.unsettled else self._some_unsettled.clear)()
        if report.done or report.outcome.conflicts or report.refused:
            self._say(json.dumps(report.as_dict(), ensure_ascii=True))

    def _fail(self, error: Exception) -> None:
        words = failure_of(error).message
        if words != self.state.error:
            self._say(f"cannot sync now: {words}")
        self.state.phase, self.state.error = "waiting", words

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):
            request = await _asked(reader)
            if request is not None:
                answer = await self._answer(request)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()

    async def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        verb = request.get("verb")
        if verb == "stop":
            self._stop.set()
            return {"stopping": True}
        if verb == "flush":
            return await self._flushed(look=bool(request.get("look")))
        if verb == "pause":
            self._going.clear()
        elif verb == "resume":
            self._going.set()
        return self._status()

    async def _flushed(self, *, look: bool) -> dict[str, Any]:
        """What was saved here before the question is on the cluster after the answer.

        `look`: what was written there is here, too. A push does without: it takes the server a walk over all files.
        """
        if not await self.events.caught_up():
            self.session.forget()
            self._due = True
        if look and self.wish.rules.mode is not Mode.PUSH:
            self._due = self._look = True
        try:
            report = await self._settled()
        except _FAILURES as error:
            self._fail(error)
            failure = failure_of(error)
            return {"error": failure.message, **failure._asdict(), **self._how}
        return {**report.as_dict(), **self._how}

    async def _settled(self) -> Report:
        """As `flush`, with a little patience for files that are being written."""
        report, ends = await self.flush(), time.monotonic() + SETTLE_SECONDS
        while report.unsettled and time.monotonic() < ends:
            await asyncio.sleep(LOOK_SECONDS)
            report = await self.flush()
        return report

    def _status(self) -> dict[str, Any]:
        state = self.state
        return {
            "pid": os.getpid(),
            **self._how,
            "phase": self._phase(),
            "paused": not self._going.is_set(),
            "error": state.error,
            "syncs": state.syncs,
            "synced": state.synced,
            "polling": self.events.why_polling,
            **state.report.as_dict(),
        }

    def _phase(self) -> str:
        """What was being synced is so to its end, also after a pause."""
        goes_on = self._going.is_set() or self._syncing.locked()
        return self.state.phase if goes_on else "paused"


async def _asked(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The object of a line of JSON; None: the line is no question, or too long for one."""
    try:
        request = json.loads(await reader.readline())
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None
