"""Rows of a table as lines of the screen. A line is made in its exact width, with as few segments as can be:
each segment and each cut costs time at every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from hai_tui.widgets.columns import GAP, Cell, Column, fit, total

MARGIN = 2
"""Cells before the first column: cursor and mark."""


@dataclass(frozen=True, slots=True)
class RowLines:
    """How lines look now: styles, columns, and which cells of them are seen."""

    styles: Mapping[str, Style]  # row, header, cursor, marked, fresh, empty
    tones: Mapping[str, Style]
    columns: Sequence[Column]
    width: int
    left: int
    now: float

    def header(self, sorted_by: tuple[str, bool]) -> Strip:
        """The titles."""
        key, reverse = sorted_by
        told = [" " * MARGIN]
        for column in self.columns:
            sign = ("▼" if reverse else "▲") if column.key == key else ""
            told.append(fit(column.title + sign, column.width, column.right) + " " * GAP)
        return self._line([], "".join(told), self.styles["header"])

    def row(self, row: Any, style: str, *, cursor: bool, marked: bool) -> Strip:
        """One row; what is not known (None) is a blank line."""
        base = self.styles[style]
        marks = ("›" if cursor else " ") + ("✓" if marked else " ")
        segments, plain, gap = [], [marks], " " * GAP
        for drawn, tone in self._cells(row) if row is not None else ():
            if tone == "plain":
                plain.append(drawn)
            else:
                segments += [Segment("".join(plain), base), Segment(drawn, base + self.tones[tone])]
                plain.clear()
            plain.append(gap)
        return self._line(segments, "".join(plain), base, known=row is not None)

    def blank(self, told: str = "") -> Strip:
        """A line below the last row, or what is said instead of rows."""
        strip = Strip([Segment(f"  {told}", self.styles["empty"])]) if told else Strip([], 0)
        end = self.left + self.width
        return strip.extend_cell_length(end, self.styles["row"]).crop(self.left, end)

    def _cells(self, row: Any) -> Iterator[tuple[str, str]]:
        for column in self.columns:
            cell = column.cell(row, self.now)
            told, tone = (cell.text, cell.tone) if isinstance(cell, Cell) else (cell, "plain")
            yield fit(told, column.width, column.right), tone

    def _line(
        self, segments: list[Segment], rest: str, style: Style, *, known: bool = True
    ) -> Strip:
        """The segments and the plain rest, filled up or cut to what is seen; widths need no counting."""
        used = MARGIN + (total(self.columns) + GAP if known and self.columns else 0)
        end = self.left + self.width
        whole = [*segments, Segment(rest + " " * (end - used), style)]
        return Strip(whole, max(used, end)).crop(self.left, end)
