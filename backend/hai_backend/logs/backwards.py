"""Reads the logs of all ranks of a task backwards: the page before a cursor, or the last page.

A page begins at the earliest time from which all ranks were read, so that lines are in order across pages. Its `begin`
is a normal cursor: reading backwards from there returns the page before, reading forwards returns this page again.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hai_backend.logs import reader
from hai_backend.logs import segments as files
from hai_backend.logs.cursor import Cursor
from hai_backend.logs.dropped import dropped, notice_line
from hai_backend.logs.lines import MAX_LINE_BYTES, LogLine, decode
from hai_backend.logs.segments import BLOCK, Segment

# a time that never decreases, the offset of the line, and the line
_Row = tuple[float, int, LogLine]


@dataclass(frozen=True, slots=True)
class Page:
    """Lines in order of time, and the cursors at their begin and end."""

    lines: list[LogLine]
    begin: Cursor
    end: Cursor


@dataclass(slots=True)
class _Batch:
    """The last lines of one rank before a position. `more` is whether there are earlier lines."""

    begin: int
    rows: list[_Row] = field(default_factory=list)
    more: bool = False


def read_back(directory: Path, cursor: Cursor, *, at_end: bool, limit: int) -> Page:
    """Return the page that ends at the cursor or, if `at_end`, the page with the last complete lines of all ranks.

    `limit` is the approximate size of the page in bytes.
    """
    logs = _logs(directory, cursor)
    positions = {
        (run, rank): _position(cursor, run, rank, segments, at_end)
        for run, ranks in logs.items()
        for rank, segments in ranks.items()
    }
    end = _end(cursor, positions) if at_end else cursor
    lines: list[LogLine] = []
    begin = end
    for run in sorted(logs, reverse=True):
        found_lines, starts, complete = _read_run(run, logs[run], positions, limit)
        lines = found_lines + lines
        limit -= sum(len(line.text) for line in found_lines)
        if starts:
            floor = 0 if cursor.run else run - 1
            begin = replace(cursor, floor=floor, positions=starts)
        if not complete or limit <= 0:
            break
    return Page(lines, begin, end)


def _logs(directory: Path, cursor: Cursor) -> dict[int, dict[int, list[Segment]]]:
    requested = [cursor.run] if cursor.run else reader.runs(directory)
    scanned = {run: files.scan(directory / str(run)) for run in requested}
    return {
        run: {k: s for k, s in found.items() if not cursor.ranks or k in cursor.ranks}
        for run, found in scanned.items()
    }


def _position(cursor: Cursor, run: int, rank: int, segments: list[Segment], at_end: bool) -> int:
    if at_end or (run <= cursor.floor and (run, rank) not in cursor.positions):
        return _end_of_lines(segments)
    return cursor.positions.get((run, rank), 0)


def _end_of_lines(segments: list[Segment]) -> int:
    """Return the offset after the last complete line."""
    first, end = segments[0].first, segments[-1].end
    begin, block = files.read(segments, max(first, end - BLOCK), BLOCK)
    newline = block.rfind(b"\n")
    return begin + newline + 1 if newline >= 0 else end if len(block) > MAX_LINE_BYTES else first


def _end(cursor: Cursor, positions: dict[tuple[int, int], int]) -> Cursor:
    """Return the cursor at these positions.

    It contains only the last two runs. Lines of the earlier of these runs may still arrive.
    """
    floor = 0 if cursor.run else max((run for run, _ in positions), default=0) - 2
    remaining = {key: value for key, value in positions.items() if key[0] > floor}
    return replace(cursor, floor=max(0, floor), positions=remaining)


def _read_run(
    run: int,
    ranks: Mapping[int, list[Segment]],
    at: Mapping[tuple[int, int], int],
    limit: int,
) -> tuple[list[LogLine], dict[tuple[int, int], int], bool]:
    """Return the last lines of a run in order of time, the start of each rank's lines, and whether all were read.

    Lines before `horizon` are left for the page before, because ranks with more lines may have later ones.
    """
    share = max(limit // max(len(ranks), 1), BLOCK)
    batches = {k: _batch(run, k, s, at[run, k], share) for k, s in ranks.items()}
    horizon = max((b.rows[0][0] for b in batches.values() if b.more and b.rows), default=None)
    selected = {k: _since(batch, horizon) for k, batch in batches.items()}
    merged = heapq.merge(*selected.values(), key=lambda row: row[0])
    starts = {
        (run, k): rows[0][1] if rows else batches[k].begin if horizon is None else at[run, k]
        for k, rows in selected.items()
    }
    return [line for _, _, line in merged], starts, horizon is None


def _batch(run: int, rank: int, segments: list[Segment], position: int, limit: int) -> _Batch:
    """Read the last complete lines of a rank before a position, at most `limit` bytes."""
    first = segments[0].first
    if position <= first:
        return _Batch(position)
    begin, data = files.read(segments, max(first, position - limit), min(limit, position - first))
    data = data[: max(0, position - begin)]
    if begin > first and b"\n" in data[:-1]:
        cut = data.index(b"\n") + 1  # skip the line that begins before this block
        begin, data = begin + cut, data[cut:]
    batch = _Batch(begin, more=begin > first)
    time, at = 0.0, begin
    for raw in data[:-1].split(b"\n") if data else []:
        line = decode(raw, run, rank, time)
        time = max(time, line.time)
        batch.rows.append((time, at, line))
        at += len(raw) + 1
    if begin == first > 0 and batch.rows:
        time, _, line = batch.rows[0]
        part = dropped(segments[0].path.parent, rank, segments)
        batch.rows.insert(0, (time, 0, notice_line(part, run, rank, line.time)))
    return batch


def _since(batch: _Batch, horizon: float | None) -> list[_Row]:
    if horizon is None:
        return batch.rows
    return [row for row in batch.rows if row[0] >= horizon]
