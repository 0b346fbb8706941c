"""Emulates the last rows of a terminal, which a program that draws progress bars may still overwrite. Pure.

A bar returns to the beginning of its row, or moves the cursor up to earlier rows (nested bars of tqdm, rich, pip).
Overwritten text is lost, as on a terminal; a finished row becomes a line of the log. Which rows are finished is a
heuristic: those further up than the cursor has ever moved, and, after some seconds, those that it has not visited
again. A wrong guess adds a line with an earlier state; no line is lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from unicodedata import category, east_asian_width

_CSI = r"\x1b\[(?P<numbers>[0-9;]*)(?P<verb>[ABCDEFGJK])"
_OTHER_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-Z^-~\\])"
_TOKEN = re.compile(
    rf"(?P<newline>\r*\n)|(?P<returns>\r+)|(?P<back>\x08+)|{_CSI}"
    rf"|(?P<other>{_OTHER_ESCAPE}|[\x00-\x07\x0b-\x1f\x7f])|(?P<text>[^\x00-\x08\x0a-\x1f\x7f]+)"
)
_CUT = re.compile(r"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[ -/]*)?)\Z")
_MOST_ESCAPE_CHARS = 4096  # a longer one is none
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_MARKS = ("Mn", "Me", "Cf")
_MOST_ROWS = 100
_MOST_CELLS = 64 * 1024
_MOST_ESCAPES = 4096  # between two characters
_SLACK_ROWS = 2  # by which a display may grow
_FINISHED_SECONDS, _IN_REACH_SECONDS = 1.0, 10.0  # after which a row counts as left
_PLAIN_LINES = 200  # after so many in a row no bar is left


@dataclass(slots=True)
class _Row:
    """One character, with the escapes before it, per cell; the second cell of a wide one is empty."""

    visited_at: float
    cells: list[str] = field(default_factory=list)
    tail: str = ""  # escapes after the last character
    drawn: bool = False  # something was written, even if it was erased again
    redrawn: bool = False  # the cursor has come back to it

    @property
    def text(self) -> str:
        cells = self.cells
        if self.redrawn:  # blanks are how some programs erase
            while cells and cells[-1] == " ":
                cells.pop()
        return "".join(cells) + self.tail

    @property
    def erased(self) -> bool:
        return not self.drawn or (self.redrawn and not any(cell != " " for cell in self.cells))

    def write(self, column: int, cells: list[str]) -> None:
        """Overwrite; half of a wide character that is left becomes a blank."""
        self.cells += [" "] * (column - len(self.cells))
        end = column + len(cells)
        _halve(self.cells, column)
        _halve(self.cells, end)
        self.redrawn = self.redrawn or column < len(self.cells)
        self.cells[column:end] = cells
        self.tail, self.drawn = "", True

    def erase(self, begin: int, end: int) -> None:
        """Make blanks of these cells; at the end of the row there is nothing then."""
        if begin >= len(self.cells):
            return
        _halve(self.cells, begin)
        _halve(self.cells, end)
        count = min(end, len(self.cells)) - begin
        self.cells[begin:end] = [" "] * count if end < len(self.cells) else []
        self.tail, self.redrawn = "", True


class Screen:
    """`feed` what the program prints; `left` answers the rows that it has left, which are lines of the log then."""

    def __init__(self, now: float) -> None:
        self._rows = [_Row(now)]
        self._row = self._column = 0
        self._escapes: list[str] = []  # before the next character
        self._reach = 0  # how far above the last row the cursor has been
        self._cursor_hidden = self._first_picture = False  # rich hides the cursor while it draws …
        self._cursor_shown = False  # … and shows it again in the end
        self._plain_lines = 0
        self._cut = ""  # an escape whose end is not here yet, or a return that may end a line
        self._lines: list[str] = []
        self._bar: _Row | None = None  # the one that was changed last

    def feed(self, text: str, now: float) -> None:
        """Draw."""
        text, self._cut = self._cut + text, ""
        cut = _CUT.search(text, max(0, len(text) - _MOST_ESCAPE_CHARS))
        if cut is not None:
            text, self._cut = text[: cut.start()], cut.group()
        for token in _TOKEN.finditer(text):
            self._draw(token, now)

    def finished_lines(self, now: float) -> list[str]:
        """Rows that the program does not come back to."""
        while self._row and self._is_finished(self._rows[0], now):
            self._emit_first_row()
        lines, self._lines = self._lines, []
        return lines

    @property
    def closed(self) -> bool:
        """No bar is left: `rest` is the beginning of an ordinary line."""
        return self._ordinary and not self._cut

    @property
    def _ordinary(self) -> bool:
        row, bar = self._rows[0], self._cursor_hidden or self._rows[0].redrawn
        return len(self._rows) == 1 and not bar and self._column == len(row.cells)

    @property
    def current_row(self) -> str:
        """The row of the cursor."""
        return self._rows[self._row].text + "".join(self._escapes)

    @property
    def bar(self) -> str:
        """The bar that was changed last, as it is now; empty: there is none any more."""
        on_screen = any(row is self._bar for row in self._rows)
        return self._bar.text if self._bar is not None and on_screen else ""

    @property
    def next_at(self) -> float | None:
        """When the uppermost row counts as left, if nothing happens."""
        return self._finished_at(self._rows[0]) if self._row else None

    def end(self) -> list[str]:
        """All rows; the program has ended."""
        row, current_row = self._rows[self._row], "".join(self._escapes) + self._cut.rstrip("\r")
        row.tail, row.drawn = (
            row.tail + current_row,
            row.drawn or (self._ordinary and current_row != ""),
        )
        while self._rows and self._rows[-1].erased:
            self._rows.pop()
        lines, self._lines = self._lines + [row.text for row in self._rows if row.drawn], []
        return lines

    def _draw(self, token: re.Match[str], now: float) -> None:
        row = self._rows[self._row]
        row.visited_at = now
        match token.lastgroup:
            case "text":
                self._write(row, token.group())
            case "newline":
                self._newline(row, now)
            case "returns":
                self._put_escapes(row)
                self._column, row.redrawn, self._plain_lines = 0, True, 0
            case "back" if not self._ordinary:
                self._put_escapes(row)
                self._column = max(0, self._column - len(token.group()))
            case "verb" if token["verb"] in "AF" or not self._ordinary:
                self._execute(row, token, now)
            case _:
                self._escape(token.group())
        if row.redrawn:
            self._bar = row

    def _write(self, row: _Row, text: str) -> None:
        if self._cursor_shown and not self._column and self._row == len(self._rows) - 1:
            self._emit_all_rows()
        while text and category(text[0]) in _MARKS:  # of the character before it
            self._escape(text[0])
            text = text[1:]
        if not (cells := _cells(text, self._column)):
            return
        cells[0] = "".join(self._escapes) + cells[0]
        self._escapes.clear()
        row.redrawn = row.redrawn or self._row < len(self._rows) - 1
        row.write(self._column, cells)
        self._column += len(cells)
        if len(row.cells) > _MOST_CELLS:  # no bar, but a line without end
            self._next_row(row.visited_at)

    def _newline(self, row: _Row, now: float) -> None:
        if self._escapes:
            row.tail = "".join(self._escapes)
            self._escapes.clear()
        row.drawn = True
        self._plain_lines += 1
        plain = not row.redrawn
        self._next_row(now)
        if self._cursor_hidden or self._row < len(self._rows) - 1:
            return
        if (plain and not self._reach) or self._plain_lines > _PLAIN_LINES:
            self._emit_all_rows()

    def _next_row(self, now: float) -> None:
        self._column = 0
        self._down(1, now)
        while self._row and (len(self._rows) > _MOST_ROWS or self._row > self._overwritable_rows):
            self._emit_first_row()

    def _down(self, count: int, now: float) -> None:
        self._row += min(count, _MOST_ROWS)
        while len(self._rows) <= self._row:
            self._rows.append(_Row(now))

    def _up(self, count: int, now: float) -> None:
        self._row -= min(count, _MOST_ROWS)
        if self._row < 0:  # what stood there is a line of the log already
            self._rows[:0] = [_Row(now) for _ in range(-self._row)]
            self._row = 0
        self._reach = max(self._reach, len(self._rows) - 1 - self._row)
        self._first_picture, self._plain_lines = False, 0

    def _execute(self, row: _Row, token: re.Match[str], now: float) -> None:
        """A command that moves the cursor or erases."""
        first = token["numbers"].partition(";")[0]
        number = int(first[:6] or 0)
        count, end = max(1, number), len(row.cells)
        if token["verb"] == "K" and number == 0 and self._column >= end:
            self._escape(token.group())  # erases nothing: compilers print it behind colours
            return
        self._put_escapes(row)
        match token["verb"]:
            case "A" | "F":
                self._up(count, now)
            case "B" | "E":
                self._down(count, now)
            case "C":
                self._column = min(self._column + count, _MOST_CELLS)
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = min(count - 1, _MOST_CELLS)
            case "K":
                row.erase(0 if number else self._column, self._column + 1 if number == 1 else end)
            case "J" if number == 0:
                row.erase(self._column, end)
                for below in self._rows[self._row + 1 :]:
                    below.erase(0, len(below.cells))
        if token["verb"] in "EF":
            self._column = 0

    def _escape(self, escape: str) -> None:
        """What takes no place: a colour, a bell."""
        if escape == _HIDE or (escape == _SHOW and not self._ordinary):
            self._cursor_hidden = escape == _HIDE
            self._cursor_shown, self._first_picture = not self._cursor_hidden, self._cursor_hidden
        elif len(self._escapes) < _MOST_ESCAPES:
            self._escapes.append(escape)

    def _put_escapes(self, row: _Row) -> None:
        """They belong to the character that was written last; at the beginning of a row to the next one."""
        if 0 < self._column <= len(row.cells):
            last = _written(row.cells, self._column)
            if len(row.cells[last]) < _MOST_ESCAPE_CHARS:
                row.cells[last] += "".join(self._escapes)
            self._escapes.clear()

    @property
    def _overwritable_rows(self) -> int:
        """So many rows above the cursor may still be overwritten."""
        if self._first_picture:  # as high as it likes
            return _MOST_ROWS
        return self._reach + _SLACK_ROWS

    def _is_finished(self, row: _Row, now: float) -> bool:
        return now >= self._finished_at(row)

    def _finished_at(self, row: _Row) -> float:
        in_reach = self._row <= self._overwritable_rows - _SLACK_ROWS
        awaited = in_reach and not self._cursor_shown
        return row.visited_at + (_IN_REACH_SECONDS if awaited else _FINISHED_SECONDS)

    def _emit_first_row(self) -> None:
        row = self._rows.pop(0)
        self._row -= 1
        if row.drawn:
            self._lines.append(row.text)

    def _emit_all_rows(self) -> None:
        """All rows above that of the cursor, which is the last one; no bar is left."""
        while self._row:
            self._emit_first_row()
        self._reach = self._plain_lines = 0
        self._cursor_shown = False


def _halve(cells: list[str], column: int) -> None:
    """A wide character (or a tab) that begins before this column ends there: its cells become blanks."""
    if not 0 < column < len(cells) or cells[column]:
        return
    begin, end = _written(cells, column), column
    while end < len(cells) and not cells[end]:
        end += 1
    cells[begin:end] = [" "] * (end - begin)


def _written(cells: list[str], column: int) -> int:
    """Where the character before this column begins."""
    begin = column - 1
    while begin and not cells[begin]:
        begin -= 1
    return begin


def _cells(text: str, column: int) -> list[str]:
    """One string per cell, the first of them in this column."""
    if text.isascii() and "\t" not in text:
        return list(text)
    cells: list[str] = []
    for char in text:
        if char == "\t":
            cells += [char, *[""] * (7 - (column + len(cells)) % 8)]
        elif category(char) in _MARKS:
            cells[_written(cells, len(cells))] += char
        else:
            cells += [char, ""] if east_asian_width(char) in "WF" else [char]
    return cells
