"""Draws rows of a table as lines of the screen.

A line is made in its exact width with as few segments as possible, because each segment and each cut costs time at
every key press.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from hai_tui.formatting.cells import GAP, Cell, Column, fit, total

MARGIN = 2
"""Cells before the first column, for the cursor and the mark."""


class RowRenderer:
    """Draws lines with the current styles, columns and scroll position.

    `left` is the first visible cell. `gutter` cells at the right stay blank for the scroll bar.
    """

    def __init__(
        self,
        styles: Mapping[str, Style],  # row, header, cursor, marked, fresh, empty
        tones: Mapping[str, Style],
        columns: Sequence[Column],
        *,
        width: int,
        gutter: int,
        left: int,
        now: float,
    ) -> None:
        self._styles, self._tones, self._columns = styles, tones, columns
        self._left, self._end, self.now = left, left + width, now
        self._row_width = MARGIN + total(columns)
        self._gutter = [Segment(" " * gutter, styles["row"])] if gutter else []

    def header(self, sorted_by: tuple[str, bool]) -> Strip:
        """Return the line of titles."""
        key, reverse = sorted_by
        content = []
        for column in self._columns:
            sign = ("▼" if reverse else "▲") if column.key == key else ""
            content.append(fit(column.title + sign, column.width, column.right))
        line = " " * MARGIN + (" " * GAP).join(content)
        return self._line([], line, self._row_width, self._styles["header"])

    def row(self, row: Any, style: str, *, cursor: bool, marked: bool) -> Strip:
        """Return the line of a row; a row that is not loaded (None) is blank."""
        base = self._styles[style]
        marks = ("›" if cursor else " ") + ("✓" if marked else " ")
        if row is None:
            return self._line([], marks, MARGIN, base)
        segments, plain, gap = [], [marks], ""
        for cell_text, tone in self._cells(row):
            plain.append(gap)
            gap = " " * GAP
            if tone == "plain":
                plain.append(cell_text)
            else:
                segments += [
                    Segment("".join(plain), base),
                    Segment(cell_text, base + self._tones[tone]),
                ]
                plain.clear()
        return self._line(segments, "".join(plain), self._row_width, base)

    def blank(self, content: str = "") -> Strip:
        """Return a line below the last row, or a line of the message that an empty table shows."""
        style = self._styles["empty" if content else "row"]
        strip = Strip([Segment(f"  {content}", style)]) if content else Strip([], 0)
        return self._cut(strip.extend_cell_length(self._end, self._styles["row"]))

    def _cells(self, row: Any) -> Iterator[tuple[str, str]]:
        now = self.now
        for column in self._columns:
            cell = column.cell(row, now)
            content, tone = (cell.text, cell.tone) if isinstance(cell, Cell) else (cell, "plain")
            yield fit(content, column.width, column.right), tone

    def _line(self, segments: list[Segment], trailing_text: str, used: int, style: Style) -> Strip:
        """Return a line of the segments and the trailing text, filled up or cut to the visible cells.

        `used` is the width of both, so that nothing has to be measured.
        """
        all_segments = [*segments, Segment(trailing_text + " " * (self._end - used), style)]
        if self._left or used > self._end:
            return self._cut(Strip(all_segments, max(used, self._end)))
        return Strip(all_segments + self._gutter, self._end + _length(self._gutter))

    def _cut(self, strip: Strip) -> Strip:
        visible = strip.crop(self._left, self._end)
        return Strip([*visible, *self._gutter], visible.cell_length + _length(self._gutter))


def _length(blanks: Sequence[Segment]) -> int:
    return sum(len(each.text) for each in blanks)
