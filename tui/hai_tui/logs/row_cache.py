"""Caches the rows of a window. After a change it makes only the rows that are new or look different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from hai_tui.logs.rows import LineFormat, Row, cells, rows_of
from hai_tui.logs.window import Change, Line, Window


class RowCache:
    """Rows from the first line of the window to the last. A filter may leave out any line."""

    def __init__(self, window: Window, line_format: LineFormat) -> None:
        self._window, self.line_format = window, line_format
        self._rows: list[Row] = []
        self.widest = 0  # cells of the longest; of folded lines nobody asks

    @property
    def rows(self) -> Sequence[Row]:
        """What is shown."""
        return self._rows

    def at(self, y: int) -> Row | None:
        """The row at that place."""
        return self._rows[y] if 0 <= y < len(self._rows) else None

    def index_of(self, line: Line) -> int | None:
        """Where that very line begins, with the separator before it."""
        return next((i for i, row in enumerate(self._rows) if row.line is line), None)

    def rebuild(self) -> None:
        """Everything may be other than before."""
        self._rows = rows_of(self._window, self.line_format)
        self.widest = self._width(self._rows)

    def apply(self, change: Change) -> None:
        """The window has changed by this."""
        if change.before or change.dropped_after:
            self.rebuild()
            return
        if change.dropped_before:
            self._drop_first_rows()
        if change.dropped_before or change.after or change.replaced:
            self._replace_last_rows(change)

    def _replace_last_rows(self, change: Change) -> None:
        """Rows of lines that are new, or look otherwise, and of those after them."""
        index_of = max(0, min([len(self._window) - change.after, *change.replaced]))
        end = self._end(index_of)
        run = self._rows[end - 1].line.run if end else 0
        rows = rows_of(self._window.since(index_of), self.line_format, run)
        self._rows[end:] = rows
        self.widest = max(self.widest, self._width(rows))

    def _end(self, count: int) -> int:
        """Behind the last row of the first so many lines. Without a filter the last of them has rows for sure."""
        if self.line_format.only is not None:
            line_ids = _ids(islice(self._window, count))
        else:
            line_ids = _ids(self._window.since(count - 1)[:1] if count else ())
        indices = range(len(self._rows), 0, -1)
        return next((i for i in indices if id(self._rows[i - 1].line) in line_ids), 0)

    def _drop_first_rows(self) -> None:
        """Rows of lines that have left at the beginning go. Without a filter the first line has rows for sure."""
        line_ids = _ids(islice(self._window, 1) if self.line_format.only is None else self._window)
        begin = next((i for i, row in enumerate(self._rows) if id(row.line) in line_ids), None)
        first = [] if begin is None or self._rows[begin].begins else [self._rows[begin].line]
        self._rows[:begin] = [Row(line, begins=True) for line in first]

    def _width(self, rows: Sequence[Row]) -> int:
        if self.line_format.wrap:
            return 0
        return max((cells(row.line, self.line_format) for row in rows if not row.begins), default=0)


def _ids(lines: Iterable[Line]) -> set[int]:
    return set(map(id, lines))
