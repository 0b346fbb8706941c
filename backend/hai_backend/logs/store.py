"""Stores the logs of all ranks below one directory: `<root>/<task>/<run>/<rank>.<first offset>`.

A chunk is appended only at the end of the log. A repeated chunk changes nothing, and after a gap the agent gets the
offset from which it must continue. Readers in this process can wait until something is appended.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hai.host.disk_reserve import DiskReserve
from hai_backend.domain.errors import Unavailable
from hai_backend.logs import backwards, reader, segments
from hai_backend.logs import cursor as cursors
from hai_backend.logs.dropped import Dropped, drop, dropped, ranks
from hai_backend.logs.lines import LogLine
from hai_backend.logs.progress_bars import ProgressBars

SEGMENT_BYTES = 16 * 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
RESERVE_SECONDS = 1.0  # shortest time between two measurements of the free disk space
_MAX_CACHED = 65_536  # ranks whose size is cached


class RankName(Protocol):
    """Identifies the log of a rank. launch.base.RankKey implements it."""

    @property
    def task_id(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def rank(self) -> int: ...


@dataclass(slots=True)
class _Tail:
    """The end of a rank's log."""

    first: int  # first offset of the newest segment
    size: int  # size of the whole log
    inode: int = 0  # inode of the newest segment, or 0 before this server has created it
    replaces: bool = False  # whether the newest segment is an empty file of another server
    path: Path | None = None  # of the newest segment; None if it is not known yet


class LogStore:
    """Appends to logs, reads them and wakes up readers. One thread calls `append`. Any thread may call `read`.

    If `alone` is false, a former leader may still append to these logs, because it does not know yet that it was
    deposed.
    """

    def __init__(
        self,
        root: Path,
        max_bytes_per_rank: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        alone: bool = True,
    ) -> None:
        self._root = root
        self._alone = alone
        self._max_bytes = max_bytes_per_rank
        self._segment_bytes = max(1, min(segment_bytes, max_bytes_per_rank // 2))
        self._tails: dict[tuple[int, int, int], _Tail] = {}
        # Runs (task, number) whose directory was listed. A rank of theirs without a tail has no log.
        self._listed: set[tuple[int, int]] = set()
        self._followers: dict[int, set[asyncio.Event]] = {}
        self._reserve = DiskReserve(root, RESERVE_SECONDS)
        self._bars = ProgressBars()

    def size(self, key: RankName) -> int:
        """Return the size of a rank's log, including dropped bytes. The agent continues at this offset."""
        return self._tail(key).size

    def append(self, key: RankName, offset: int, data: bytes) -> int:
        """Append the new part of a chunk, and return the size of the log.

        Raises Unavailable if the disk is full or fails.
        """
        tail = self._tail(key)
        if not offset <= tail.size < offset + len(data):
            return tail.size
        try:
            self._write(key, tail, data[tail.size - offset :])
        except OSError as error:
            self._forget((key.task_id, key.run, key.rank))
            raise Unavailable(
                _write_error(key, self._root, error), reason="LOG_NOT_KEPT"
            ) from error
        self._bars.remove(key.task_id, key.run, key.rank)
        self._wake(key.task_id)
        return tail.size

    def show(self, key: RankName, bar: str) -> None:
        """Show a progress bar. The next line of its rank replaces it."""
        line = LogLine(key.run, key.rank, time.time(), bar, redraw=True)
        self._bars.draw(key.task_id, line)
        self._wake(key.task_id)

    def bars(
        self, task_id: int, *, ranks: tuple[int, ...] = (), run: int = 0, after: int = 0
    ) -> tuple[list[LogLine], int]:
        """Return the bars that were drawn after the number `after` (0 for all), and the number for the next call."""
        return self._bars.since(task_id, ranks, run, after)

    def read(
        self,
        task_id: int,
        *,
        ranks: tuple[int, ...] = (),
        run: int = 0,
        tail_lines: int = 0,
        since: float | None = None,
        cursor: str = "",
        max_bytes: int = 1024 * 1024,
    ) -> tuple[list[LogLine], str]:
        """Return complete lines after the cursor in order of time, and the cursor after these lines.

        Without a cursor, read from the beginning, from the last `tail_lines` of each rank, or from the time `since` on.
        An empty result means that there are no more lines now. Raises Invalid for a cursor of another request.
        """
        start = None if cursor else reader.Start(tail_lines, since)
        position = cursors.matching(cursor, tuple(sorted(set(ranks))), run)
        lines, after = reader.read(self._root / str(task_id), position, start, max_bytes)
        return lines, cursors.encode(after)

    def read_back(
        self,
        task_id: int,
        *,
        ranks: tuple[int, ...] = (),
        run: int = 0,
        cursor: str = "",
        max_bytes: int = 256 * 1024,
    ) -> tuple[list[LogLine], str, str]:
        """Return the last lines before the cursor, and the cursors at their begin and end.

        Without a cursor, return the last lines of the log. The first cursor is empty if there are no lines.
        """
        position = cursors.matching(cursor, tuple(sorted(set(ranks))), run)
        directory = self._root / str(task_id)
        page = backwards.read_back(directory, position, at_end=not cursor, limit=max_bytes)
        begin = cursors.encode(page.begin) if page.lines else ""
        return page.lines, begin, cursors.encode(page.end)

    def dropped(self, task_id: int, run: int) -> dict[int, Dropped]:
        """Return what was dropped from the logs of a run, by rank. Ranks without dropped lines are omitted."""
        directory = self._root / str(task_id) / str(run)
        if not (ranks_with_loss := ranks(directory)):
            return {}
        found = segments.scan(directory)
        return {
            rank: dropped(directory, rank, found[rank]) for rank in ranks_with_loss & found.keys()
        }

    @contextmanager
    def appends(self, task_id: int) -> Iterator[asyncio.Event]:
        """An event that is set when a line or bar of the task is added. Clear it before reading, to miss nothing."""
        event, followers = asyncio.Event(), self._followers.setdefault(task_id, set())
        followers.add(event)
        try:
            yield event
        finally:
            followers.discard(event)
            if not followers:
                self._followers.pop(task_id, None)

    def is_followed(self, task_id: int) -> bool:
        """Return whether somebody waits for lines of the task."""
        return task_id in self._followers

    def _wake(self, task_id: int) -> None:
        for follower in self._followers.get(task_id, ()):
            follower.set()

    def _tail(self, key: RankName) -> _Tail:
        name = (key.task_id, key.run, key.rank)
        if name not in self._tails and name[:2] not in self._listed:
            self._find_tails(key)
        tail = self._tails.pop(name, None) or _Tail(0, 0)
        self._tails[name] = tail  # the most recently used entry is removed last
        while len(self._tails) > _MAX_CACHED:
            self._forget(next(iter(self._tails)))
        return tail

    def _find_tails(self, key: RankName) -> None:
        """Find the ends of the logs of all ranks of a run, because after a restart all of them attach."""
        for rank, found in segments.scan(self._directory(key)).items():
            last = found[-1]
            tail = _Tail(last.first, last.end)
            if not self._alone:
                # A former leader may still append to its segment. Bytes after the start of the new one are not read.
                tail = _Tail(last.end, last.end, replaces=not last.size)
            self._tails.setdefault((key.task_id, key.run, rank), tail)
        self._listed.add((key.task_id, key.run))

    def _forget(self, name: tuple[int, int, int]) -> None:
        self._tails.pop(name, None)
        self._listed.discard(name[:2])

    def _directory(self, key: RankName) -> Path:
        return self._root / str(key.task_id) / str(key.run)

    def _write(self, key: RankName, tail: _Tail, data: bytes) -> None:
        """Append data. Begin a new segment if the current one is full and ends with a line, or is twice as large."""
        path = self._path(key, tail)
        self._reserve.require(len(data))
        _append_to(self._open(path, tail), data)
        tail.size += len(data)
        length = tail.size - tail.first
        if length >= self._segment_bytes and (
            data.endswith(b"\n") or length >= 2 * self._segment_bytes
        ):
            tail.first, tail.inode, tail.path = tail.size, 0, None
            os.close(self._open(self._path(key, tail), tail))
            self._drop_oldest(self._directory(key), key.rank)

    def _path(self, key: RankName, tail: _Tail) -> Path:
        """Return the path of the newest segment. Its directory is created before the first write of this server."""
        if tail.path is None:
            directory = self._directory(key)
            directory.mkdir(parents=True, exist_ok=True)
            tail.path = segments.path_of(directory, key.rank, tail.first)
        return tail.path

    def _open(self, path: Path, tail: _Tail) -> int:
        """Open the newest segment for appending.

        Two servers never write the same file. A file of another server is replaced if it is empty. Otherwise raise
        FileExistsError.
        """
        if self._alone:
            return os.open(path, _APPEND | os.O_CREAT, 0o600)
        if tail.inode:
            descriptor = os.open(path, _APPEND)
            if os.fstat(descriptor).st_ino == tail.inode:
                return descriptor
            os.close(descriptor)
            raise FileExistsError(errno.EEXIST, "another server writes it")
        descriptor = _replace(path) if tail.replaces else _create(path)
        tail.inode, tail.replaces = os.fstat(descriptor).st_ino, False
        return descriptor

    def _drop_oldest(self, directory: Path, rank: int) -> None:
        found = segments.scan(directory)[rank]
        while found[:-1] and found[-1].end - found[0].first > self._max_bytes - self._segment_bytes:
            drop(directory, rank, found.pop(0))


def _create(path: Path) -> int:
    return os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)


def _replace(path: Path) -> int:
    """Replace the file of another server. The other server then detects the different inode."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = _create(new)
    new.replace(path)
    return descriptor


def _append_to(descriptor: int, data: bytes) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _write_error(key: RankName, root: Path, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    problem = "the disk is full: free some space" if full else error.strerror or str(error)
    return f"cannot keep the log of task {key.task_id} run {key.run} rank {key.rank} in {root}: {problem}"
