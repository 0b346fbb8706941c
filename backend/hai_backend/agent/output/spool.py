"""Spools the output of the program on disk until the server has stored it.

Offsets are those of the server's log. The first byte of the spool follows the end of the log at the time when the
agent attached.

Acknowledged segments are deleted. If the spool reaches its limit while the server is unavailable, a notice replaces the
oldest unsent lines. The spool is not used after the agent has ended, because the program ends with the agent.
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
    dropped: int = 0  # if the segment is a notice: how many bytes of output it replaces; else 0

    @property
    def end(self) -> int:
        return self.begin + self.size


class Spool:
    """A queue of lines. `append` adds lines, `piece` and `sent` read them, and `acknowledge` deletes them."""

    def __init__(
        self, directory: Path, *, limit: int = LIMIT_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self._limit = limit
        self._segment_bytes = segment_bytes
        self._segment_count = 0
        self._lost_bytes = 0
        self._loss_reason = ""
        self._sent = 0  # offset on this stream; a new stream may begin at an earlier offset
        self._ever_sent = 0  # offset on any stream; bytes may arrive after a later stream has begun
        self.acknowledged = 0
        self._segments = [self._new_segment(0)]

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self._segments[-1].end

    @property
    def drained(self) -> bool:
        """Whether everything was sent on this stream."""
        return self._sent >= self.end

    def append(self, lines: bytes) -> None:
        """Append complete lines. If the disk is full, lines are lost, and a notice reports how many bytes."""
        notice = _notice(self._lost_bytes, self._loss_reason) if self._lost_bytes else b""
        try:
            self._write(notice + lines)
            self._lost_bytes = 0
        except OSError as error:
            self._count_loss(len(lines), error)
        self._shrink()

    def resume(self, offset: int) -> None:
        """Continue on a new stream at `offset`, which is the end of the server's log."""
        first = self._segments[0].begin
        if not first <= offset <= self._ever_sent:
            distance = offset - (first if offset < first else self._ever_sent)
            self._move(0, distance)
            self._ever_sent += distance
        self._sent = offset
        self.acknowledged = offset

    def piece(self) -> tuple[int, bytes] | None:
        """Return the offset and the bytes to send next; None if all were sent.

        The bytes are complete lines, unless the stream was resumed within a line or a line is too long.
        """
        for segment in self._segments:
            if segment.end > self._sent:
                return self._sent, _complete_lines(_read(segment, self._sent - segment.begin))
        return None

    def sent(self, offset: int) -> None:
        """Record that everything before `offset` is sent.

        Call it before the bytes are written to the stream, because a write that fails may still have sent them.
        """
        self._sent = offset
        self._ever_sent = max(self._ever_sent, offset)

    def acknowledge(self, offset: int) -> None:
        """Delete the segments before `offset`, because the server has stored them."""
        self.acknowledged = max(self.acknowledged, offset)
        while len(self._segments) > 1 and self._segments[0].end <= self.acknowledged:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def _new_segment(self, begin: int) -> _Segment:
        self._segment_count += 1
        return _Segment(self._directory / str(self._segment_count), begin)

    def _write(self, lines: bytes) -> None:
        if self._segments[-1].size >= self._segment_bytes:
            self._segments.append(self._new_segment(self.end))
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
        """Replace a segment, with a notice before it if there is one, by one notice.

        This changes later offsets, which is allowed because those bytes were never sent.
        """
        first = index - 1 if index and self._segments[index - 1].dropped else index
        replaced = self._segments[first : index + 1]
        begin, end = replaced[0].begin, replaced[-1].end
        notice = self._new_segment(begin)
        notice.dropped = sum(s.dropped or s.size for s in replaced)
        line = _notice(notice.dropped, "the server was away for too long")
        for segment in replaced:
            segment.path.unlink(missing_ok=True)
        try:
            _append(notice, line)
            notice.size = len(line)
        except OSError as error:  # another process has used the space that became free
            self._count_loss(notice.dropped, error)
        self._segments[first : index + 1] = [notice] if notice.size else []
        self._move(first + bool(notice.size), notice.end - end)

    def _count_loss(self, size: int, error: OSError) -> None:
        """Count lost bytes for the notice that the next `append` writes."""
        self._lost_bytes += size
        self._loss_reason = f"{self._directory}: {error.strerror}"

    def _move(self, index: int, distance: int) -> None:
        for segment in self._segments[index:]:
            segment.begin += distance


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
            # `at` is the end of the complete lines, so this overwrites a line that was written only in part.
            written = os.pwrite(handle, view, at)
            view, at = view[written:], at + written
    finally:
        os.close(handle)
