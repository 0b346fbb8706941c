"""Keeps a workspace in sync while the daemon runs.

Events of local changes and new revisions on the server start a sync. A complete scan at intervals finds changes
without an event. After a temporary failure (the server is down, the disk is full) the sync is retried with growing
delays. Conflicts are reported and left to the user; all other paths are synced.
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
from hai_sync.core.reconcile_options import Mode
from hai_sync.error_mapping import map_error
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.session import Session
from hai_sync.session.unstable_files import UnstableFiles
from hai_sync.watch.control import ShortSocketPath
from hai_sync.watch.events import Events

RESCAN_SECONDS = 120.0
"""Interval of complete scans of both sides."""

BATCH_SECONDS = 0.02
"""Delay after a change, so that changes in quick succession become one sync."""

UNSTABLE_POLL_SECONDS = 0.25
"""Interval of polling files that changed while they were read."""

STABLE_TIMEOUT_SECONDS = 10.0
"""How long a flush waits for such files. A file that grows forever must not block it."""


_TRANSIENT_ERRORS = (HaiError, OSError, sqlite3.Error)
"""Failures that may be temporary: the server is down, or the disk is full (SQLite raises its own error)."""


@dataclass(slots=True)
class _State:
    """The state that `status` reports."""

    phase: str = "starting"
    error: str = ""
    syncs: int = 0
    synced: float = 0.0
    report: Report = field(default_factory=Report)


class Daemon:
    """Syncs one workspace until it is stopped."""

    def __init__(
        self,
        session: Session,
        options: SyncOptions,
        log: Callable[[str], None],
        server: Mapping[str, str] | None = None,
    ) -> None:
        self.session = session
        self.options = replace(options, partial=True, keep_in_memory=True, purpose="watch")
        self.events = Events(session.workspace.root)
        self.state = _State()
        self._log = log
        self._description = {
            "mode": options.rules.mode.value,
            "filtered": options.filter.is_special,
            **(server or {}),
        }
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._resumed = asyncio.Event()  # cleared by `pause`; then the daemon syncs only on `flush`
        self._resumed.set()
        self._syncing = asyncio.Lock()
        self._inode = 0  # inode of the daemon's socket
        self._unstable_files = UnstableFiles(session.workspace.root)
        self._has_unstable_files = asyncio.Event()
        self._due = False  # whether something may have changed
        self._scan_remote = True  # whether the server must scan its files too

    async def run(self) -> None:
        """Run until `stop` is called or the root is removed."""
        socket = self.session.workspace.socket
        socket.unlink(missing_ok=True)
        with ShortSocketPath(self.session.workspace.private_dir) as path:
            server = await asyncio.start_unix_server(self._handle_connection, path)
        os.chmod(socket, 0o600)
        self._inode = os.stat(socket).st_ino
        coroutines: list[Coroutine[Any, Any, None]] = [
            self._watch_local(),
            self._watch_remote(),
            self._rescan_periodically(),
            self._sync_when_woken(),
            self._poll_unstable_files(),
            self._wait_for_stop(),
        ]
        tasks = [asyncio.ensure_future(work) for work in coroutines]
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
            if self._owns_socket():
                socket.unlink()

    def _owns_socket(self) -> bool:
        """Return whether the socket is still that of this daemon: it may have been removed or replaced."""
        with suppress(OSError):
            return os.stat(self.session.workspace.socket).st_ino == self._inode
        return False

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    async def _watch_local(self) -> None:
        """Start a sync after each change of local files. Ends when the root is removed."""
        async for paths in self.events.hints():
            if paths is None:
                self.session.forget_hints()
            else:
                self.session.hint(paths)
            self._wake_up()
        self._log(f"{self.session.workspace.root} was removed; nothing was changed on the server")

    async def _watch_remote(self) -> None:
        """Start a sync after each new revision that another client or a task has made."""
        if self.options.rules.mode is Mode.PUSH:
            await self._stop.wait()
        retry_delays = delays()
        while True:
            with suppress(HaiError):
                async for number in self.session.remote.watch():
                    retry_delays = delays()
                    async with self._syncing:  # waits for a push whose revision this may be
                        if number > self.session.revision:
                            self.session.note_new_revision()
                            self._wake_up()
            await asyncio.sleep(next(retry_delays))

    async def _rescan_periodically(self) -> None:
        """Scan both sides completely at intervals. Ends when the socket is lost."""
        await asyncio.sleep(RESCAN_SECONDS)
        while self._owns_socket():
            self.session.forget_hints()
            self._wake_up(scan_remote=True)
            await asyncio.sleep(RESCAN_SECONDS)
        self._log("the socket was removed, so that no command can reach the daemon; it stops")

    def _wake_up(self, scan_remote: bool = False) -> None:
        """Request a sync; with `scan_remote` the server scans its files for it."""
        self._due = True
        self._scan_remote = self._scan_remote or scan_remote
        self._wake.set()

    async def _sync_when_woken(self) -> None:
        """Sync after each wake-up, and retry temporary failures."""
        retry_delays = delays()
        while True:
            await self._wake.wait()
            await asyncio.sleep(BATCH_SECONDS)
            await self._resumed.wait()
            try:
                await self.flush()
                retry_delays = delays()
            except _TRANSIENT_ERRORS as error:
                self._record_failure(error)
                await asyncio.sleep(next(retry_delays))
                self.session.forget_hints()
                self._wake_up(scan_remote=True)

    async def _poll_unstable_files(self) -> None:
        """Sync files that changed while they were read, once they no longer change."""
        while True:
            await self._has_unstable_files.wait()
            await asyncio.sleep(UNSTABLE_POLL_SECONDS)
            if quiet := self._unstable_files.take_quiet(time.monotonic()):
                self.session.hint(quiet)
                self._wake_up()

    async def flush(self) -> Report:
        """Sync what has changed. Raises HaiError, OSError or sqlite3.Error."""
        async with self._syncing:
            if not self._due:
                return self.state.report
            self._due = False
            self._wake.clear()
            scan_remote, self._scan_remote = self._scan_remote, False
            self.state.phase = "syncing"
            try:
                report = await self.session.sync(replace(self.options, scan_remote=scan_remote))
            except BaseException:
                self._due, self._scan_remote = True, True
                raise
            self._record_success(report)
            return report

    def _record_success(self, report: Report) -> None:
        """Update the state after a sync, and log it if it did something."""
        state = self.state
        state.phase, state.error = "watching", ""
        state.syncs, state.synced, state.report = state.syncs + 1, time.time(), report
        self._unstable_files.replace(report.unstable_files, time.monotonic())
        (
            self._has_unstable_files.set
            if report.unstable_files
            else self._has_unstable_files.clear
        )()
        if report.done or report.outcome.conflicts or report.refused:
            self._log(json.dumps(report.as_dict(), ensure_ascii=True))

    def _record_failure(self, error: Exception) -> None:
        """Update the state after a failure. Equal failures in a row are logged once."""
        message = map_error(error).message
        if message != self.state.error:
            self._log(f"cannot sync now: {message}")
        self.state.phase, self.state.error = "waiting", message

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request of a command."""
        with closing(writer), suppress(ConnectionError):
            request = await _read_request(reader)
            if request is not None:
                reply = await self._reply_to(request)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()

    async def _reply_to(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a request and return the reply."""
        verb = request.get("verb")
        if verb == "stop":
            self._stop.set()
            return {"stopping": True}
        if verb == "flush":
            return await self._flush_request(scan_remote=bool(request.get("look")))
        if verb == "pause":
            self._resumed.clear()
        elif verb == "resume":
            self._resumed.set()
        return self._status()

    async def _flush_request(self, *, scan_remote: bool) -> dict[str, Any]:
        """Sync everything that was saved locally before the request.

        With `scan_remote`, also sync everything that was written on the cluster before. `push` does not need this,
        and the server would have to scan all files.
        """
        if not await self.events.wait_until_caught_up():
            self.session.forget_hints()
            self._due = True
        if scan_remote and self.options.rules.mode is not Mode.PUSH:
            self._due = self._scan_remote = True
        try:
            report = await self._flush_until_stable()
        except _TRANSIENT_ERRORS as error:
            self._record_failure(error)
            failure = map_error(error)
            return {"error": failure.message, **failure._asdict(), **self._description}
        return {**report.as_dict(), **self._description}

    async def _flush_until_stable(self) -> Report:
        """Flush until no file changes while it is read, or the time limit is reached."""
        report, deadline = await self.flush(), time.monotonic() + STABLE_TIMEOUT_SECONDS
        while report.unstable_files and time.monotonic() < deadline:
            await asyncio.sleep(UNSTABLE_POLL_SECONDS)
            report = await self.flush()
        return report

    def _status(self) -> dict[str, Any]:
        state = self.state
        return {
            "pid": os.getpid(),
            **self._description,
            "phase": self._phase(),
            "paused": not self._resumed.is_set(),
            "error": state.error,
            "syncs": state.syncs,
            "synced": state.synced,
            "polling": self.events.why_polling,
            **state.report.as_dict(),
        }

    def _phase(self) -> str:
        """Return the phase for `status`. A running sync is shown until it ends, also after a pause."""
        is_active = self._resumed.is_set() or self._syncing.locked()
        return self.state.phase if is_active else "paused"


async def _read_request(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read a line with a JSON object. Return None if it is not one, or too long."""
    try:
        request = json.loads(await reader.readline())
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None
