"""Caches the display rows of the loaded range of log lines. A change rebuilds only the rows that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from hai_tui.logs.rows import LineFormat, Row, cells, rows_of
from hai_tui.logs.window import Change, Line, Window


class RowCache:
    """The rows of all lines of a `Window`, in order. A filter may hide any line."""

    def __init__(self, window: Window, line_format: LineFormat) -> None:
        self._window, self.line_format = window, line_format
        self._rows: list[Row] = []
        self.max_width = 0  # width of the longest row, in cells; 0 if lines are wrapped

    @property
    def rows(self) -> Sequence[Row]:
        """All rows that pass the filter."""
        return self._rows

    def at(self, y: int) -> Row | None:
        """Return the row with index `y`, or None if there is none."""
        return self._rows[y] if 0 <= y < len(self._rows) else None

    def index_of(self, line: Line) -> int | None:
        """Return the index of the first row of this line, or of its separator row if it has one."""
        return next((i for i, row in enumerate(self._rows) if row.line is line), None)

    def rebuild(self) -> None:
        """Build all rows again."""
        self._rows = rows_of(self._window, self.line_format)
        self.max_width = self._width(self._rows)

    def apply(self, change: Change) -> None:
        """Update the rows after a change of the window."""
        if change.before or change.dropped_after:
            self.rebuild()
            return
        if change.dropped_before:
            self._drop_first_rows()
        if change.dropped_before or change.after or change.replaced:
            self._replace_last_rows(change)

    def _replace_last_rows(self, change: Change) -> None:
        """Rebuild the rows from the first new or changed line to the end."""
        first_changed = max(0, min([len(self._window) - change.after, *change.replaced]))
        end = self._row_count(first_changed)
        run_number = self._rows[end - 1].line.run if end else 0
        rows = rows_of(self._window.since(first_changed), self.line_format, run_number)
        self._rows[end:] = rows
        self.max_width = max(self.max_width, self._width(rows))

    def _row_count(self, line_count: int) -> int:
        """Return the number of rows of the first lines.

        Without a filter every line has a row, so the rows of the last of these lines are enough.
        """
        if self.line_format.only is not None:
            line_ids = _ids(islice(self._window, line_count))
        else:
            line_ids = _ids(self._window.since(line_count - 1)[:1] if line_count else ())
        indices = range(len(self._rows), 0, -1)
        return next((i for i in indices if id(self._rows[i - 1].line) in line_ids), 0)

    def _drop_first_rows(self) -> None:
        """Remove the rows of lines that the window dropped at its start. A separator stays before the first line."""
        line_ids = _ids(islice(self._window, 1) if self.line_format.only is None else self._window)
        begin = next((i for i, row in enumerate(self._rows) if id(row.line) in line_ids), None)
        separators = (
            [] if begin is None or self._rows[begin].starts_run else [self._rows[begin].line]
        )
        self._rows[:begin] = [Row(line, starts_run=True) for line in separators]

    def _width(self, rows: Sequence[Row]) -> int:
        if self.line_format.wrap:
            return 0
        return max(
            (cells(row.line, self.line_format) for row in rows if not row.starts_run), default=0
        )


def _ids(lines: Iterable[Line]) -> set[int]:
    return set(map(id, lines))
