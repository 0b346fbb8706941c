"""The logs of all ranks below one directory: `<root>/<task>/<run>/<rank>.<first offset>`.

The server appends only at its own size, so a chunk that an agent repeats changes nothing and a gap is answered with the
size to go on from. Readers in this process sleep until something was appended.
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
from hai_backend.logs.progress_bars import Bars

SEGMENT_BYTES = 16 * 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
RESERVE_SECONDS = 1.0  # a disk that many ranks write to is asked for its room no more often
_REMEMBERED = 65_536  # ranks whose size is kept in memory


class RankName(Protocol):
    """What names a rank's log: launch.base.RankKey does."""

    @property
    def task_id(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def rank(self) -> int: ...


@dataclass(slots=True)
class _Tail:
    first: int  # of the newest segment
    size: int  # of the whole log
    inode: int = 0  # of the file of the newest segment, once this server has made it
    replaces: bool = False  # an empty file that another server has made


class LogStore:
    """Appends, reads and wakes readers. `append` belongs to one thread; `read` may run in any.

    Not `alone`: another server may have written these logs, and may not know yet that it leads no more.
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
        self._followers: dict[int, set[asyncio.Event]] = {}
        self._reserve = DiskReserve(root, RESERVE_SECONDS)
        self._bars = Bars()

    def size(self, key: RankName) -> int:
        """Bytes of the rank's log that were ever kept: where its agent goes on."""
        return self._tail(key).size

    def append(self, key: RankName, offset: int, data: bytes) -> int:
        """Keep what is new of a chunk; answers the size. Raises Unavailable when the disk does not take it."""
        tail = self._tail(key)
        if not offset <= tail.size < offset + len(data):
            return tail.size
        try:
            self._write(key, tail, data[tail.size - offset :])
        except OSError as error:
            self._forget(key)
            raise Unavailable(_not_kept(key, self._root, error), reason="LOG_NOT_KEPT") from error
        self._bars.forget(key.task_id, key.run, key.rank)
        self._wake(key.task_id)
        return tail.size

    def show(self, key: RankName, bar: str) -> None:
        """A progress bar as it is now; the next line of its rank replaces it."""
        line = LogLine(key.run, key.rank, time.time(), bar, redraw=True)
        self._bars.draw(key.task_id, line)
        self._wake(key.task_id)

    def bars(
        self, task_id: int, *, ranks: tuple[int, ...] = (), run: int = 0, after: int = 0
    ) -> tuple[list[LogLine], int]:
        """Bars that were drawn after this number (0: all that there are), and the number to go on from."""
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
        """Complete lines after the cursor in order of time, and the cursor after them.

        Without a cursor: from the beginning, from the last `tail_lines` of each rank, or from `since` on.
        An empty answer means that there is no more now. Raises Invalid for a cursor of another request.
        """
        start = None if cursor else reader.Start(tail_lines, since)
        place = cursors.matching(cursor, tuple(sorted(set(ranks))), run)
        lines, after = reader.read(self._root / str(task_id), place, start, max_bytes)
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
        """The last lines before the cursor, without one the last of all; where they begin ("" when there
        are none) and where they end.
        """
        place = cursors.matching(cursor, tuple(sorted(set(ranks))), run)
        directory = self._root / str(task_id)
        page = backwards.read_back(directory, place, at_end=not cursor, limit=max_bytes)
        begin = cursors.encode(page.begin) if page.lines else ""
        return page.lines, begin, cursors.encode(page.end)

    def dropped(self, task_id: int, run: int) -> dict[int, Dropped]:
        """What the logs of a run have lost to their limit, by rank; only ranks that have lost something."""
        directory = self._root / str(task_id) / str(run)
        if not (some := ranks(directory)):
            return {}
        found = segments.scan(directory)
        return {rank: dropped(directory, rank, found[rank]) for rank in some & found.keys()}

    @contextmanager
    def appends(self, task_id: int) -> Iterator[asyncio.Event]:
        """Set by whatever is appended to the task's logs, or shown; who clears it before reading misses nothing."""
        event, followers = asyncio.Event(), self._followers.setdefault(task_id, set())
        followers.add(event)
        try:
            yield event
        finally:
            followers.discard(event)
            if not followers:
                self._followers.pop(task_id, None)

    def _wake(self, task_id: int) -> None:
        for follower in self._followers.get(task_id, ()):
            follower.set()

    def _tail(self, key: RankName) -> _Tail:
        name = (key.task_id, key.run, key.rank)
        tail = self._tails.pop(name, None) or self._find_tail(key)
        self._tails[name] = tail  # the last one used is the last one forgotten
        if len(self._tails) > _REMEMBERED:
            self._tails.pop(next(iter(self._tails)))
        return tail

    def _find_tail(self, key: RankName) -> _Tail:
        found = segments.scan(self._directory(key)).get(key.rank)
        if not found:
            return _Tail(0, 0)
        # A leader that was paused may still append to its own file: what it writes beyond our beginning is not read.
        last = found[-1]
        if self._alone:
            return _Tail(last.first, last.end)
        return _Tail(last.end, last.end, replaces=not last.size)

    def _forget(self, key: RankName) -> None:
        self._tails.pop((key.task_id, key.run, key.rank), None)

    def _directory(self, key: RankName) -> Path:
        return self._root / str(key.task_id) / str(key.run)

    def _write(self, key: RankName, tail: _Tail, data: bytes) -> None:
        directory = self._directory(key)
        directory.mkdir(parents=True, exist_ok=True)
        self._reserve.require(len(data))
        _append_to(self._open(segments.path_of(directory, key.rank, tail.first), tail), data)
        tail.size += len(data)
        length = tail.size - tail.first
        if length >= self._segment_bytes and (
            data.endswith(b"\n") or length >= 2 * self._segment_bytes
        ):
            tail.first, tail.inode = tail.size, 0
            os.close(self._open(segments.path_of(directory, key.rank, tail.first), tail))
            self._drop_oldest(directory, key.rank)

    def _open(self, path: Path, tail: _Tail) -> int:
        """The file of the newest segment. No two servers write one file: that of the other one is never ours."""
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
    """Put a file of ours in the place of another one, whose writer then finds that it is not its own."""
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


def _not_kept(key: RankName, root: Path, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = "the disk is full: free some space" if full else error.strerror or str(error)
    return (
        f"cannot keep the log of task {key.task_id} run {key.run} rank {key.rank} in {root}: {what}"
    )
