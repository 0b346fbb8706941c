"""The segment files of a rank's log. Together they form one stream of bytes.

The name of a file is `<rank>.<offset of the first byte>`. Offsets are counted from the first byte of the log, even if
the oldest segments were dropped. Segments begin at the start of a line, so that only complete lines are dropped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hai_backend.logs.lines import MAX_LINE_BYTES, time_of

BLOCK = 2 * MAX_LINE_BYTES  # contains at least one complete line


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file at the time when the directory was listed."""

    path: Path
    first: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.size


def path_of(directory: Path, rank: int, first: int) -> Path:
    """Return the path of a segment."""
    return directory / f"{rank}.{first}"


def scan(directory: Path) -> dict[int, list[Segment]]:
    """Return the segments of each rank of a run, oldest first."""
    found: dict[int, list[Segment]] = {}
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return found
    for entry in entries:
        if (segment := _segment(entry)) is not None:
            found.setdefault(int(entry.name.partition(".")[0]), []).append(segment)
    return {rank: _joined(sorted(s, key=lambda x: x.first)) for rank, s in sorted(found.items())}


def read(segments: Sequence[Segment], position: int, limit: int) -> tuple[int, bytes]:
    """Return the offset of the first byte that was read, and at most `limit` bytes from `position` on.

    The offset is larger than `position` if bytes were dropped.
    """
    parts: list[bytes] = []
    begin, length = position, 0
    for segment in segments:
        if segment.end <= position or length >= limit:
            continue
        at = max(position, segment.first)
        data = _read_file(segment, at, limit - length)
        if not parts:
            begin = at
        elif begin + length != at:
            break  # bytes are missing here; the next call begins after them
        if data:
            parts.append(data)
            length += len(data)
    return begin, b"".join(parts)


def tail_position(segments: Sequence[Segment], lines: int) -> tuple[int, int]:
    """Return the offset of the last `lines` complete lines, and how many lines are missing.

    Reads backwards in blocks.
    """
    first, end = segments[0].first, segments[-1].end
    needed = lines + 1  # newlines, including the one before the first of these lines
    while end > first:
        begin = max(first, end - BLOCK)
        _, block = read(segments, begin, end - begin)
        newlines = block.count(b"\n")
        if newlines >= needed:
            return begin + _nth_last(block, needed) + 1, 0
        needed -= newlines
        end = begin
    return first, needed - 1


def since_position(segments: Sequence[Segment], since: float) -> int:
    """Return the offset of the first line with a time stamp at or after `since`.

    Uses bisection, because time stamps never decrease.
    """
    low, high = segments[0].first, segments[-1].end
    while high - low > BLOCK:
        middle = (low + high) // 2
        line, time = _line_after(segments, middle)
        if time is not None and time < since and line < high:
            low = line
        else:
            high = middle
    return _walk(segments, low, since)


def _walk(segments: Sequence[Segment], position: int, since: float) -> int:
    while True:
        begin, block = read(segments, position, BLOCK)
        complete = block[: block.rfind(b"\n") + 1]
        at = begin
        for line in _lines(complete):
            time = time_of(line)
            if time is not None and time >= since:
                return at
            at += len(line)
        if not complete:
            return begin
        position = at


def _lines(block: bytes) -> list[bytes]:
    return [line + b"\n" for line in block[:-1].split(b"\n")]


def _line_after(segments: Sequence[Segment], position: int) -> tuple[int, float | None]:
    begin, block = read(segments, position, BLOCK)
    start = block.find(b"\n") + 1
    return begin + start, time_of(block[start : start + 32])


def _nth_last(block: bytes, n: int) -> int:
    at = len(block)
    for _ in range(n):
        at = block.rfind(b"\n", 0, at)
    return at


def _read_file(segment: Segment, position: int, limit: int) -> bytes:
    try:
        with segment.path.open("rb", buffering=0) as file:
            file.seek(position - segment.first)
            return file.read(min(limit, segment.end - position))
    except FileNotFoundError:
        return b""  # the segment was dropped after the directory was listed


def _segment(entry: os.DirEntry[str]) -> Segment | None:
    rank, _, first = entry.name.partition(".")
    if not (rank.isdecimal() and first.isdecimal()):
        return None
    try:
        return Segment(Path(entry.path), int(first), entry.stat().st_size)
    except FileNotFoundError:
        return None


def _joined(segments: list[Segment]) -> list[Segment]:
    """Return the segments without bytes that a later segment also contains.

    Segments overlap only if an operator has copied files, or if a former leader has appended to its segment.
    """
    cut = [Segment(a.path, a.first, min(a.size, b.first - a.first)) for a, b in pairwise(segments)]
    return [*cut, *segments[-1:]]
