"""Counts the lines that were dropped from a rank's log because of its size limit.

The file `<rank>.dropped` beside the segments contains "LINES BYTES": the first BYTES bytes of the log had LINES lines.
It is written before a segment is deleted, so after a crash it may count a segment that still exists. The count is
therefore used only if the oldest segment begins at BYTES, and a counted segment is not counted again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hai_backend.logs.lines import LogLine
from hai_backend.logs.segments import Segment

_UNKNOWN = -1  # number of lines if an older server has dropped lines without counting them
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Dropped:
    """The dropped beginning of a log. `lines` is None if the number of lines is unknown."""

    bytes: int
    lines: int | None

    def __str__(self) -> str:
        """Return a text such as `12345 lines (8.0 MB)`."""
        size = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 100_000 else f"{self.bytes} bytes"
        if self.lines is None:
            return size
        return f"{self.lines} line{'s' if self.lines != 1 else ''} ({size})"


def dropped(directory: Path, rank: int, segments: Sequence[Segment]) -> Dropped:
    """Return what was dropped before the oldest of these segments."""
    first = segments[0].first
    lines, counted = _read(directory, rank)
    if first == 0:
        return Dropped(0, 0)
    return Dropped(first, lines if counted == first and lines != _UNKNOWN else None)


def notice_line(part: Dropped, run: int, rank: int, time: float) -> LogLine:
    """Return the line that the server shows instead of the dropped lines."""
    text = f"[hai] {part} before this line are not kept: the log of a rank keeps its newest part"
    return LogLine(run, rank, time, text)


def drop(directory: Path, rank: int, segment: Segment) -> None:
    """Delete the oldest segment of a rank, and count its lines. Raises OSError."""
    lines, counted = _read(directory, rank)
    if segment.first == counted and lines != _UNKNOWN:
        _write(directory, rank, lines + _count_lines(segment.path), segment.end)
    elif segment.first > counted or lines == _UNKNOWN:
        _write(directory, rank, _UNKNOWN, segment.end)
    # Otherwise a server has counted the segment and ended before it deleted the file.
    segment.path.unlink(missing_ok=True)


def _read(directory: Path, rank: int) -> tuple[int, int]:
    try:
        lines, counted = map(int, _path(directory, rank).read_text().split())
    except FileNotFoundError:
        return 0, 0
    except ValueError:  # the file was not written by a server
        return _UNKNOWN, 0
    return lines, counted


def _write(directory: Path, rank: int, lines: int, counted: int) -> None:
    new = _path(directory, rank).with_suffix(".dropped.new")
    new.write_text(f"{lines} {counted}\n")
    new.replace(_path(directory, rank))


def _path(directory: Path, rank: int) -> Path:
    return directory / f"{rank}.dropped"


def _count_lines(path: Path) -> int:
    count = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n")
    return count


def ranks(directory: Path) -> frozenset[int]:
    """Return the ranks of a run whose logs have a count of dropped lines."""
    try:
        names = [entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return frozenset()
    heads = (name.removesuffix(".dropped") for name in names if name.endswith(".dropped"))
    return frozenset(int(head) for head in heads if head.isdecimal())
