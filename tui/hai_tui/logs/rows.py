"""Converts log lines to rows of the screen: applies the filter, folds long lines, inserts a heading before each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from hai_tui.formatting.values import local
from hai_tui.i18n import text
from hai_tui.logs.ansi_sanitize import plain
from hai_tui.logs.search import Test
from hai_tui.logs.window import Line

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Run


class Row(NamedTuple):
    """One row of the screen: part `piece` of a line, or, with `starts_run`, the heading of the line's run."""

    line: Line
    piece: int = 0
    starts_run: bool = False


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How lines are shown. `wrap` is the width in cells at which lines are folded; 0 means never."""

    wrap: int = 0
    times: bool = False
    labels: bool = False
    only: Test | None = None

    def prefix(self, line: Line) -> str:
        """Return the time and the rank label before a line."""
        time = datetime.fromtimestamp(line.time, UTC).astimezone() if self.times else None
        label = f"{time:%H:%M:%S}.{time.microsecond // 1000:03} " if time else ""
        return f"{label}{line.rank:>3}│ " if self.labels else label


def rows_of(lines: Iterable[Line], line_format: LineFormat, run: int = 0) -> list[Row]:
    """Return the rows of lines that follow a line of that run; 0 means that they are the first."""
    rows: list[Row] = []
    for line in lines:
        if line_format.only is not None and not line_format.only(line):
            continue
        if line.run != run:
            rows.append(Row(line, starts_run=True))
            run = line.run
        rows.append(Row(line))
        if line_format.wrap:
            rows += (Row(line, piece) for piece in range(1, _piece_count(line, line_format)))
    return rows


def _piece_count(line: Line, line_format: LineFormat) -> int:
    if (
        len(line.text) * 2 <= line_format.wrap - 18
    ):  # fits even with the longest prefix and wide characters
        return 1
    return max(1, ceil(cells(line, line_format) / line_format.wrap))


def cells(line: Line, line_format: LineFormat) -> int:
    """Return the width of a line with its prefix."""
    content = plain(line.text)
    return len(line_format.prefix(line)) + (
        len(content) if content.isascii() else cell_len(content)
    )


def separator(runs: Sequence[Run], number: int) -> str:
    """Return the heading of a run, such as `run 3 of 5, since 2026-11-21 12:30:00 · run 2 ended: …`.

    For an unknown run it contains only the number.
    """
    by_number = {run.number: run for run in runs}
    run = by_number.get(number)
    if run is None:
        return text("logs.run", run=number)
    since = local(run.start_time if run.start_time.seconds else run.create_time)
    heading = text("logs.run.of", run=number, count=len(runs), since=since)
    previous = by_number.get(number - 1)
    if previous is None or not previous.reason:
        return heading
    return text("logs.run.after", told=heading, before=previous.number, reason=previous.reason)
