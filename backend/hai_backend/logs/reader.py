"""Reads the logs of all ranks and runs of a task as one stream in order of time.

Runs follow one another. Within a run, an answer ends at the latest time up to which all ranks were read, so that lines
are also in order across answers. Memory is limited by the size of the answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hai_backend.logs import segments as files
from hai_backend.logs.cursor import Cursor
from hai_backend.logs.dropped import Dropped, dropped, notice_line
from hai_backend.logs.lines import MAX_LINE_BYTES, LogLine, decode
from hai_backend.logs.segments import Segment


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader without a cursor begins: at the last `tail_lines` lines of each rank, or at the time `since`.

    If both are given, the later position counts. If none is given, the reader begins at the beginning.
    """

    tail_lines: int = 0
    since: float | None = None

    def positions(
        self, runs: Sequence[tuple[int, Mapping[int, list[Segment]]]]
    ) -> dict[tuple[int, int], int]:
        """Return the first position in each run and rank. `runs` has the oldest run first.

        The `tail_lines` of a rank are counted over all runs.
        """
        at: dict[tuple[int, int], int] = {}
        shortfall: dict[int, int] = {}
        for run, ranks in reversed(runs):
            for rank, segments in ranks.items():
                requested = shortfall.get(rank, self.tail_lines)
                at[run, rank], shortfall[rank] = self._position(segments, requested)
        return at

    def _position(self, segments: list[Segment], lines: int) -> tuple[int, int]:
        first = segments[0].first
        tail, shortfall = files.tail_position(segments, lines) if self.tail_lines else (first, 0)
        after = first if self.since is None else files.since_position(segments, self.since)
        position = max(tail, after)
        # Position 0 reports dropped lines. They are not reported if the log has all requested lines.
        from_beginning = position == first and (shortfall or not self.tail_lines)
        return (0 if from_beginning else position), shortfall


@dataclass(slots=True)
class _Batch:
    """Lines of one rank. Each has a time that never decreases, and the offset of the next line."""

    position: int
    lines: list[tuple[float, int, LogLine]] = field(default_factory=list)
    more: bool = False  # whether the rank has more lines after these


def read(
    directory: Path, cursor: Cursor, start: Start | None, limit: int
) -> tuple[list[LogLine], Cursor]:
    """Return complete lines after the cursor, and the cursor after these lines.

    `start` is where to begin if the request had no cursor, else None. `limit` is the approximate size in bytes.
    """
    lines: list[LogLine] = []
    if start is not None:
        cursor = replace(cursor, positions=start.positions(list(_sources(directory, cursor))))
    for run, ranks in _sources(directory, cursor):
        found_lines, positions, done = _read_run(run, ranks, cursor.positions, limit)
        lines += found_lines
        cursor = replace(cursor, positions={**cursor.positions, **positions})
        limit -= sum(len(line.text) for line in found_lines)
        if not done or limit <= 0:
            break
        cursor = _drop_finished_run(cursor, run, directory)
    return lines, cursor


def _sources(directory: Path, cursor: Cursor) -> Iterator[tuple[int, dict[int, list[Segment]]]]:
    requested = [cursor.run] if cursor.run else [r for r in runs(directory) if r > cursor.floor]
    for run in requested:
        found = files.scan(directory / str(run))
        yield run, {k: s for k, s in found.items() if not cursor.ranks or k in cursor.ranks}


def runs(directory: Path) -> list[int]:
    """Return the runs that have a log, oldest first."""
    try:
        return sorted(int(p.name) for p in directory.iterdir() if p.name.isdecimal())
    except FileNotFoundError:
        return []


def _drop_finished_run(cursor: Cursor, run: int, directory: Path) -> Cursor:
    """Remove the offsets of a run if the second run after it has begun, to keep cursors short."""
    if cursor.run or run + 1 >= max(runs(directory)):
        return cursor
    remaining = {key: value for key, value in cursor.positions.items() if key[0] > run}
    return replace(cursor, floor=run, positions=remaining)


def _read_run(
    run: int, ranks: Mapping[int, list[Segment]], at: Mapping[tuple[int, int], int], limit: int
) -> tuple[list[LogLine], dict[tuple[int, int], int], bool]:
    """Return lines of a run in order of time, the next position of each rank, and whether all lines were read.

    Lines after `horizon` are left for the next answer, because ranks with more lines may have earlier ones.
    """
    unread = {k: s for k, s in ranks.items() if at.get((run, k), 0) < s[-1].end}
    share = max(limit // max(len(unread), 1), MAX_LINE_BYTES + 1)
    batches = {k: _batch(run, k, s, at.get((run, k), 0), share) for k, s in unread.items()}
    for rank, batch in batches.items():
        _mark_dropped(batch, unread[rank], run, rank, at.get((run, rank), 0))
    horizon = min((b.lines[-1][0] for b in batches.values() if b.more and b.lines), default=None)
    selected = {k: _until(batch, horizon) for k, batch in batches.items()}
    merged = heapq.merge(*selected.values(), key=lambda entry: entry[0])
    positions = {
        (run, k): entries[-1][1] if entries else batches[k].position
        for k, entries in selected.items()
    }
    return [line for _, _, line in merged], positions, horizon is None


def _batch(run: int, rank: int, segments: list[Segment], position: int, limit: int) -> _Batch:
    """Read complete lines of a rank from a position on, at most `limit` bytes."""
    begin, data = files.read(segments, position, limit)
    batch = _Batch(begin)
    end, time = begin, 0.0
    for raw in _complete_lines(data):
        line = decode(raw, run, rank, time)
        time = max(time, line.time)
        # A newline follows the line, unless the line is too long and was cut off.
        end += len(raw) + (data[end - begin + len(raw) : end - begin + len(raw) + 1] == b"\n")
        batch.lines.append((time, end, line))
    batch.more = bool(batch.lines) and begin + len(data) < segments[-1].end
    return batch


def _mark_dropped(
    batch: _Batch, segments: list[Segment], run: int, rank: int, position: int
) -> None:
    """Insert a line that reports what was dropped between `position` and the first line of the batch."""
    missing = batch.position - position
    if missing <= 0 or not batch.lines:
        return
    complete = position == 0 and batch.position == segments[0].first
    part = dropped(segments[0].path.parent, rank, segments) if complete else Dropped(missing, None)
    time, _, first = batch.lines[0]
    batch.lines.insert(0, (time, batch.position, notice_line(part, run, rank, first.time)))
    batch.position = position  # the offset to use if the inserted line is not read


def _complete_lines(data: bytes) -> list[bytes]:
    """Return the complete lines, without newlines. A line that exceeds the maximum length counts as complete."""
    *complete, last = data.split(b"\n")
    if not complete and len(last) > MAX_LINE_BYTES:
        return [last]
    return complete


def _until(batch: _Batch, horizon: float | None) -> list[tuple[float, int, LogLine]]:
    if horizon is None:
        return batch.lines
    return [entry for entry in batch.lines if entry[0] <= horizon]
