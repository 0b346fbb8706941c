"""Rows of a table as lines of the screen. A line is made in its exact width, with as few segments as can be:
each segment and each cut costs time at every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from hai_tui.formatting.cells import GAP, Cell, Column, fit, total

MARGIN = 2
"""Cells before the first column: cursor and mark."""


class RowRenderer:
    """How lines look now: styles, columns, and which cells of them are seen; `gutter` cells stay blank at the right."""

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
        self._used = MARGIN + total(columns)
        self._gutter = [Segment(" " * gutter, styles["row"])] if gutter else []

    def header(self, sorted_by: tuple[str, bool]) -> Strip:
        """The titles."""
        key, reverse = sorted_by
        content = []
        for column in self._columns:
            sign = ("▼" if reverse else "▲") if column.key == key else ""
            content.append(fit(column.title + sign, column.width, column.right))
        line = " " * MARGIN + (" " * GAP).join(content)
        return self._line([], line, self._used, self._styles["header"])

    def row(self, row: Any, style: str, *, cursor: bool, marked: bool) -> Strip:
        """One row; what is not known (None) is a blank line."""
        base = self._styles[style]
        marks = ("›" if cursor else " ") + ("✓" if marked else " ")
        if row is None:
            return self._line([], marks, MARGIN, base)
        segments, plain, gap = [], [marks], ""
        for drawn, tone in self._cells(row):
            plain.append(gap)
            gap = " " * GAP
            if tone == "plain":
                plain.append(drawn)
            else:
                segments += [
                    Segment("".join(plain), base),
                    Segment(drawn, base + self._tones[tone]),
                ]
                plain.clear()
        return self._line(segments, "".join(plain), self._used, base)

    def blank(self, content: str = "") -> Strip:
        """A line below the last row, or what is said instead of rows."""
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
        """The segments and the plain rest, filled up or cut to what is seen; widths need no counting."""
        all_segments = [*segments, Segment(trailing_text + " " * (self._end - used), style)]
        if self._left or used > self._end:
            return self._cut(Strip(all_segments, max(used, self._end)))
        return Strip(all_segments + self._gutter, self._end + _length(self._gutter))

    def _cut(self, strip: Strip) -> Strip:
        visible = strip.crop(self._left, self._end)
        return Strip([*visible, *self._gutter], visible.cell_length + _length(self._gutter))


def _length(blanks: Sequence[Segment]) -> int:
    return sum(len(each.text) for each in blanks)
