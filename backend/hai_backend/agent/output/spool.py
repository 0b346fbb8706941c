"""Spools the output of the program on disk until the server has stored it: bounded, in order, at the server's offsets.

Offsets are the server's: the first byte follows the end of the log when the agent attached. Acknowledged segments are
deleted. If the limit is reached while the server is unavailable, the oldest unsent lines are replaced by a notice. The
spool is not needed after the end of the agent, because the program ends with it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from hai_backend.logs.lines import stamp

PIECE_BYTES = 64 * 1024
SEGMENT_BYTES = 4 * 1024 * 1024
LIMIT_BYTES = 1024 * 1024 * 1024


@dataclass(slots=True)
class _Segment:
    path: Path
    begin: int
    size: int = 0
    dropped: int = 0  # bytes for which this segment, one line, stands

    @property
    def end(self) -> int:
        return self.begin + self.size


class Spool:
    """`append` whole lines; `piece` and `sent` walk through them; `acknowledge` lets go."""

    def __init__(
        self, directory: Path, *, limit: int = LIMIT_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self._limit = limit
        self._segment_bytes = segment_bytes
        self._count = 0
        self._lost_bytes = 0
        self._loss_reason = ""
        self._sent = 0  # on this stream: goes back where the server holds less
        self._ever_sent = 0  # on any stream: it may still arrive when a later one has begun
        self.acknowledged = 0
        self._segments = [self._new(0)]

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self._segments[-1].end

    @property
    def drained(self) -> bool:
        """Everything was sent on this stream."""
        return self._sent >= self.end

    def append(self, lines: bytes) -> None:
        """Keep whole lines. A disk that is full costs lines, never the program; a line will say so."""
        notice = _notice(self._lost_bytes, self._loss_reason) if self._lost_bytes else b""
        try:
            self._write(notice + lines)
            self._lost_bytes = 0
        except OSError as error:
            self._lose(len(lines), error)
        self._shrink()

    def begin(self, offset: int) -> None:
        """A stream was opened and the server holds `offset` bytes: go on from there."""
        first = self._segments[0].begin
        if not first <= offset <= self._ever_sent:
            by = offset - (first if offset < first else self._ever_sent)
            self._move(0, by)
            self._ever_sent += by
        self._sent = offset
        self.acknowledged = offset

    def piece(self) -> tuple[int, bytes] | None:
        """The next bytes to send and their offset; whole lines wherever the server's offset allows."""
        for segment in self._segments:
            if segment.end > self._sent:
                return self._sent, _complete_lines(_read(segment, self._sent - segment.begin))
        return None

    def sent(self, offset: int) -> None:
        """Everything before `offset` is on its way, or will be: call it before it is written.

        A write that fails may have been sent all the same.
        """
        self._sent = offset
        self._ever_sent = max(self._ever_sent, offset)

    def acknowledge(self, offset: int) -> None:
        """The server has everything before `offset`."""
        self.acknowledged = max(self.acknowledged, offset)
        while len(self._segments) > 1 and self._segments[0].end <= self.acknowledged:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def _new(self, begin: int) -> _Segment:
        self._count += 1
        return _Segment(self._directory / str(self._count), begin)

    def _write(self, lines: bytes) -> None:
        if self._segments[-1].size >= self._segment_bytes:
            self._segments.append(self._new(self.end))
        segment = self._segments[-1]
        _append(segment, lines)
        segment.size += len(lines)

    def _shrink(self) -> None:
        while self.end - self._segments[0].begin > self._limit:
            index = self._oldest_unsent()
            if index is None:
                return
            self._drop(index)

    def _oldest_unsent(self) -> int | None:
        for index, segment in enumerate(self._segments[:-1]):
            if segment.begin >= self._ever_sent and not segment.dropped:
                return index
        return None

    def _drop(self, index: int) -> None:
        """Replace a segment, and a notice before it, by one notice; later offsets were never sent and may move."""
        first = index - 1 if index and self._segments[index - 1].dropped else index
        replaced = self._segments[first : index + 1]
        begin, end = replaced[0].begin, replaced[-1].end
        notice = self._new(begin)
        notice.dropped = sum(s.dropped or s.size for s in replaced)
        line = _notice(notice.dropped, "the server was away for too long")
        for segment in replaced:
            segment.path.unlink(missing_ok=True)
        try:
            _append(notice, line)
            notice.size = len(line)
        except OSError as error:  # somebody else has taken the room that was made
            self._lose(notice.dropped, error)
        self._segments[first : index + 1] = [notice] if notice.size else []
        self._move(first + bool(notice.size), notice.end - end)

    def _lose(self, size: int, error: OSError) -> None:
        """The next line that can be kept says so."""
        self._lost_bytes += size
        self._loss_reason = f"{self._directory}: {error.strerror}"

    def _move(self, index: int, by: int) -> None:
        for segment in self._segments[index:]:
            segment.begin += by


def _notice(count: int, why: str) -> bytes:
    return stamp(time.time()) + f"[hai] {count} bytes of output were lost here: {why}\n".encode()


def _complete_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1] or data


def _read(segment: _Segment, position: int) -> bytes:
    with segment.path.open("rb", buffering=0) as file:
        file.seek(position)
        return file.read(min(PIECE_BYTES, segment.size - position))


def _append(segment: _Segment, data: bytes) -> None:
    handle = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        view, at = memoryview(data), segment.size
        while view:
            # At our own end: a half-written line is overwritten
            written = os.pwrite(handle, view, at)
            view, at = view[written:], at + written
    finally:
        os.close(handle)
