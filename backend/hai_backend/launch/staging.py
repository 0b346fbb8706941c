"""The memory of this machine in which tasks stage their checkpoints, and the process that writes these to disk.

Each task has a directory below `root`, which is in a tmpfs: see hai.task.staging. While there are staged
checkpoints, a writer process runs (checkpoint_writer.py). It survives the server, and the next server waits for it or
starts another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from watchfiles import Change, awatch

from hai.task import env, staging
from hai_backend.launch import pidfd, rank_dirs, write_reports
from hai_backend.launch.base import CheckpointWritten
from hai_backend.launch.checkpoint_writer import WRITER_LOCK

log = logging.getLogger(__name__)
_WRITER_LOG = "writer.log"
_RESYNC_MILLISECONDS = 5000  # changes may be missed while a directory is new
_RESTART_SECONDS = 1.0  # pause after a writer that has failed
_DEFAULT_SHARE = 0.5  # of the memory of the machine


def default_root(home: Path) -> Path:
    """Return the directory in memory for a home. Its name is the same for every server of this home."""
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()
    return Path("/dev/shm") / f"hai-{os.getuid()}-{digest[:12]}"


class CheckpointStaging:
    """The staging directories of the tasks of this machine. `limit` is their size in bytes; 0 means half the memory."""

    def __init__(self, root: Path, limit: int = 0) -> None:
        self._root = root
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._limit = limit or int(_DEFAULT_SHARE * memory)
        self._used: set[int] = set()  # tasks that have ranks
        self._freeing: set[asyncio.Task[None]] = set()
        self._writer: int | None = None  # its pidfd
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._report_written: Callable[[CheckpointWritten], None] = lambda written: None

    def start(
        self, report_written: Callable[[CheckpointWritten], None] = lambda written: None
    ) -> None:
        """Write checkpoints that an earlier server has left. Report those that are written from now on."""
        self._report_written = report_written
        if self._root.exists() and self._make_root():
            self._start_watching()
            self._write_pending()

    def variables(self, task_id: int) -> dict[str, str]:
        """Create the directory of a task, and return the variables that name it.

        They are empty if it cannot be created. Then the program writes its checkpoints directly.
        """
        directory = self._root / str(task_id)
        try:
            if not self._make_root():
                return {}
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            log.warning("no memory for checkpoints of task %d: %s", task_id, error)
            return {}
        self._used.add(task_id)
        return {env.STAGING_DIR: str(directory), env.STAGING_BYTES: str(self._limit)}

    def use(self, task_id: int) -> None:
        """Keep the directory of a task that has a rank, and watch for its checkpoints."""
        self._used.add(task_id)
        self._start_watching()

    def release(self, task_id: int) -> None:
        """Free the memory of a task that has no rank any more, as soon as its checkpoints are durable."""
        self._used.discard(task_id)
        self._free_in_background(self._root / str(task_id))

    def finish(self) -> list[str]:
        """Write all staged checkpoints in this process, and remove the directories. Return the failures."""
        errors: list[str] = []
        if not self._root.exists() or not self._make_root():
            return errors
        for directory in self._directories():
            for target in dict.fromkeys(staged.target for staged in staging.pending(directory)):
                try:
                    staging.write_out_all(directory, target)
                except OSError as error:
                    errors.append(f"checkpoint {target} in {directory} is not written: {error}")
            staging.remove_unused(directory)
            _remove_empty(directory)
        write_reports.take(self._root)
        if not errors:
            for name in (WRITER_LOCK, _WRITER_LOG):
                (self._root / name).unlink(missing_ok=True)
            _remove_empty(self._root)
        return errors

    def close(self) -> None:
        """Stop watching. The writer continues."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        if self._writer is not None:
            asyncio.get_running_loop().remove_reader(self._writer)
            pidfd.reap_later(self._writer)
            self._writer = None

    def _start_watching(self) -> None:
        if self._watching is None and self._make_root():
            self._watching = asyncio.create_task(self._keep_watching(), name="staged checkpoints")

    def _make_root(self) -> bool:
        """Create the root. Return False if it belongs to another user, who could read or change checkpoints."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._root.lstat()
        except OSError as error:
            log.warning("checkpoints are not staged in memory: %s", error)
            return False
        if status.st_uid != os.getuid() or status.st_mode & 0o077 or self._root.is_symlink():
            log.warning("checkpoints are not staged in memory: %s is not private", self._root)
            return False
        return True

    def _free_in_background(self, directory: Path) -> None:
        freeing = asyncio.ensure_future(self._free(directory))
        self._freeing.add(freeing)
        freeing.add_done_callback(self._freeing.discard)

    async def _free(self, directory: Path) -> None:
        """Free buffers in a thread, because this takes seconds for large ones. Then remove an empty directory."""
        await asyncio.to_thread(staging.remove_unused, directory)
        if int(directory.name) not in self._used:  # the next run may have begun
            _remove_empty(directory)

    def _directories(self) -> list[Path]:
        with suppress(FileNotFoundError):
            found = [path for path in self._root.iterdir() if path.name.isdecimal()]
            return [path for path in found if path.is_dir() and not path.is_symlink()]
        return []

    async def _keep_watching(self) -> None:
        """Watch until the server ends. After an error, such as too few descriptors, look again every few seconds."""
        while True:
            try:
                await self._watch()
            except Exception as error:
                log.error("staged checkpoints cannot be watched: %s", error)
            await asyncio.sleep(_RESYNC_MILLISECONDS / 1000)
            self._make_root()
            self._write_pending()

    async def _watch(self) -> None:
        def is_staged(change: Change, path: str) -> bool:
            return change is Change.added and path.endswith((staging.STAGED, write_reports.SUFFIX))

        changes = awatch(
            self._root,
            watch_filter=is_staged,
            debounce=100,
            step=10,
            rust_timeout=_RESYNC_MILLISECONDS,
            yield_on_timeout=True,
        )
        async for _ in changes:
            self._write_pending()

    def _write_pending(self) -> None:
        """Start a writer if checkpoints are staged and none runs. An error is logged; the next look tries again."""
        try:
            self._start_writer_if_needed()
        except OSError as error:
            log.error("staged checkpoints are not written yet: %s", error)

    def _start_writer_if_needed(self) -> None:
        if self._closed:
            return
        for written in write_reports.take(self._root):
            self._report_written(written)
        if self._writer is not None:
            return
        for directory in self._directories():
            if int(directory.name) not in self._used:
                self._free_in_background(directory)
        if any(staging.pending(directory) for directory in self._directories()):
            self._writer = _spawn_writer(self._root)
            asyncio.get_running_loop().add_reader(self._writer, self._writer_ended)

    def _writer_ended(self) -> None:
        assert self._writer is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._writer)
        failed = pidfd.reap(self._writer) != 0
        self._writer = None
        loop.call_later(_RESTART_SECONDS if failed else 0.0, self._write_pending)


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):  # it has staged checkpoints
        directory.rmdir()


def _spawn_writer(root: Path) -> int:
    """Start the writer in its own session, and return its pidfd."""
    with (root / _WRITER_LOG).open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hai_backend.launch.checkpoint_writer", str(root)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=root,
            env=rank_dirs.inherited(os.environ),
            start_new_session=True,
        )
    process.returncode = 0  # the pidfd is watched, so Popen must neither wait nor warn
    return os.pidfd_open(process.pid)
