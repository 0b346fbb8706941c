"""Emulates the last rows of a terminal. A program that draws progress bars may still overwrite these rows.

To redraw a bar, a program (tqdm, rich, pip) returns to the beginning of the row, or moves the cursor up to earlier
rows. Overwritten text is lost, as on a terminal. A finished row becomes a line of the log. Two heuristic rules decide
which rows are finished: rows further up than the cursor has ever moved, and rows that the cursor has not visited for
some seconds. If the heuristic is wrong, the log has an additional line with an earlier state of the bar. No line is
lost.
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
_INCOMPLETE = re.compile(r"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[ -/]*)?)\Z")
_MAX_ESCAPE_CHARS = 4096  # a longer sequence is not an escape
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_COMBINING = ("Mn", "Me", "Cf")  # Unicode categories of characters without a cell of their own
_MAX_ROWS = 100
_MAX_CELLS = 64 * 1024
_MAX_ESCAPES = 4096  # limit of the escapes between two characters
_EXTRA_ROWS = 2  # a display may grow by so many rows
# Seconds after the last visit of the cursor after which a row counts as finished: if the program seems unable to return
# to the row, and if it may return.
_FINISHED_SECONDS, _IN_REACH_SECONDS = 1.0, 10.0
_PLAIN_LINES = 200  # after so many successive lines without drawing, no bar is left


@dataclass(slots=True)
class _Row:
    """A row of cells: each has a character and the escapes before it. The second cell of a wide character is empty."""

    visited_at: float
    cells: list[str] = field(default_factory=list)
    tail: str = ""  # escapes after the last character
    drawn: bool = False  # something was written, even if it was erased later
    redrawn: bool = False  # the cursor has returned to written cells

    @property
    def text(self) -> str:
        cells = self.cells
        if self.redrawn:  # some programs erase by writing blanks
            while cells and cells[-1] == " ":
                cells.pop()
        return "".join(cells) + self.tail

    @property
    def is_empty(self) -> bool:
        return not self.drawn or (self.redrawn and not any(cell != " " for cell in self.cells))

    def write(self, column: int, cells: list[str]) -> None:
        """Overwrite cells from `column` on. If half of a wide character remains, it becomes a blank."""
        self.cells += [" "] * (column - len(self.cells))
        end = column + len(cells)
        _split_wide_character(self.cells, column)
        _split_wide_character(self.cells, end)
        self.redrawn = self.redrawn or column < len(self.cells)
        self.cells[column:end] = cells
        self.tail, self.drawn = "", True

    def erase(self, begin: int, end: int) -> None:
        """Replace cells by blanks, or remove them if they are at the end of the row."""
        if begin >= len(self.cells):
            return
        _split_wide_character(self.cells, begin)
        _split_wide_character(self.cells, end)
        count = min(end, len(self.cells)) - begin
        self.cells[begin:end] = [" "] * count if end < len(self.cells) else []
        self.tail, self.redrawn = "", True


class Screen:
    """The rows that may still change. `feed` draws output, and `take_finished` returns the finished rows."""

    def __init__(self, now: float) -> None:
        self._rows = [_Row(now)]
        self._row = self._column = 0
        self._escapes: list[str] = []  # the escapes before the next character
        self._reach = 0  # the largest distance of the cursor above the last row so far
        self._cursor_hidden = False  # rich hides the cursor while it draws
        self._first_picture = False  # the cursor is hidden, and has not moved up since
        self._cursor_shown = False  # the cursor was hidden and is visible again: drawing has ended
        self._plain_lines = 0  # successive lines without drawing
        self._incomplete = ""  # the beginning of an escape, or a return that may end a line
        self._lines: list[str] = []  # finished rows
        self._bar: _Row | None = None  # the bar that changed last

    def feed(self, text: str, now: float) -> None:
        """Draw the text."""
        text, self._incomplete = self._incomplete + text, ""
        incomplete = _INCOMPLETE.search(text, max(0, len(text) - _MAX_ESCAPE_CHARS))
        if incomplete is not None:
            text, self._incomplete = text[: incomplete.start()], incomplete.group()
        for token in _TOKEN.finditer(text):
            self._draw(token, now)

    def take_finished(self, now: float) -> list[str]:
        """Remove and return the rows that the program will not change any more."""
        while self._row and self._is_finished(self._rows[0], now):
            self._emit_first_row()
        lines, self._lines = self._lines, []
        return lines

    @property
    def closed(self) -> bool:
        """Whether no bar is left, so that `current_row` is the beginning of an ordinary line."""
        return self._ordinary and not self._incomplete

    @property
    def _ordinary(self) -> bool:
        """Whether the only row was written from left to right, as ordinary output."""
        row = self._rows[0]
        is_bar = self._cursor_hidden or row.redrawn
        return len(self._rows) == 1 and not is_bar and self._column == len(row.cells)

    @property
    def current_row(self) -> str:
        """The text of the row in which the cursor is."""
        return self._rows[self._row].text + "".join(self._escapes)

    @property
    def bar(self) -> str:
        """The text of the bar that changed last; empty if no bar is left."""
        on_screen = any(row is self._bar for row in self._rows)
        return self._bar.text if self._bar is not None and on_screen else ""

    @property
    def next_finished_at(self) -> float | None:
        """When the uppermost row counts as finished if the program prints nothing more."""
        return self._finished_at(self._rows[0]) if self._row else None

    def end(self) -> list[str]:
        """Return all rows, because the output has ended."""
        row = self._rows[self._row]
        last_escapes = "".join(self._escapes) + self._incomplete.rstrip("\r")
        row.drawn = row.drawn or (self._ordinary and last_escapes != "")
        row.tail += last_escapes
        while self._rows and self._rows[-1].is_empty:
            self._rows.pop()
        lines, self._lines = self._lines + [row.text for row in self._rows if row.drawn], []
        return lines

    def _draw(self, token: re.Match[str], now: float) -> None:
        """Draw a token: text, a newline, carriage returns, backspaces or an escape."""
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
                self._add_escape(token.group())
        if row.redrawn:
            self._bar = row

    def _write(self, row: _Row, text: str) -> None:
        """Write text at the cursor. A row that becomes too long ends there."""
        if self._cursor_shown and not self._column and self._row == len(self._rows) - 1:
            self._emit_all_rows()
        while text and category(text[0]) in _COMBINING:  # it belongs to the character before
            self._add_escape(text[0])
            text = text[1:]
        if not (cells := _cells(text, self._column)):
            return
        cells[0] = "".join(self._escapes) + cells[0]
        self._escapes.clear()
        row.redrawn = row.redrawn or self._row < len(self._rows) - 1
        row.write(self._column, cells)
        self._column += len(cells)
        if len(row.cells) > _MAX_CELLS:  # an endless line is not a bar
            self._next_row(row.visited_at)

    def _newline(self, row: _Row, now: float) -> None:
        """Move to the next row. Emit all rows above it if they can be no bars."""
        if self._escapes:
            row.tail = "".join(self._escapes)
            self._escapes.clear()
        row.drawn = True
        self._plain_lines += 1
        is_plain = not row.redrawn
        self._next_row(now)
        if self._cursor_hidden or self._row < len(self._rows) - 1:
            return
        if (is_plain and not self._reach) or self._plain_lines > _PLAIN_LINES:
            self._emit_all_rows()

    def _next_row(self, now: float) -> None:
        self._column = 0
        self._down(1, now)
        while self._row and (len(self._rows) > _MAX_ROWS or self._row > self._overwritable_rows):
            self._emit_first_row()

    def _down(self, count: int, now: float) -> None:
        self._row += min(count, _MAX_ROWS)
        while len(self._rows) <= self._row:
            self._rows.append(_Row(now))

    def _up(self, count: int, now: float) -> None:
        self._row -= min(count, _MAX_ROWS)
        if self._row < 0:  # the rows above are already lines of the log
            self._rows[:0] = [_Row(now) for _ in range(-self._row)]
            self._row = 0
        self._reach = max(self._reach, len(self._rows) - 1 - self._row)
        self._first_picture, self._plain_lines = False, 0

    def _execute(self, row: _Row, token: re.Match[str], now: float) -> None:
        """Execute an escape that moves the cursor or erases."""
        first = token["numbers"].partition(";")[0]
        number = int(first[:6] or 0)
        count, end = max(1, number), len(row.cells)
        if token["verb"] == "K" and number == 0 and self._column >= end:
            self._add_escape(token.group())  # it erases nothing; compilers print it after colours
            return
        self._put_escapes(row)
        match token["verb"]:
            case "A" | "F":
                self._up(count, now)
            case "B" | "E":
                self._down(count, now)
            case "C":
                self._column = min(self._column + count, _MAX_CELLS)
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = min(count - 1, _MAX_CELLS)
            case "K":
                row.erase(0 if number else self._column, self._column + 1 if number == 1 else end)
            case "J" if number == 0:
                row.erase(self._column, end)
                for below in self._rows[self._row + 1 :]:
                    below.erase(0, len(below.cells))
        if token["verb"] in "EF":
            self._column = 0

    def _add_escape(self, escape: str) -> None:
        """Keep an escape that has no cell, such as a colour. Record whether the cursor is hidden."""
        if escape == _HIDE or (escape == _SHOW and not self._ordinary):
            self._cursor_hidden = escape == _HIDE
            self._cursor_shown, self._first_picture = not self._cursor_hidden, self._cursor_hidden
        elif len(self._escapes) < _MAX_ESCAPES:
            self._escapes.append(escape)

    def _put_escapes(self, row: _Row) -> None:
        """Attach the pending escapes to the character before the cursor.

        At the beginning of a row, they stay pending until the next character is written.
        """
        if 0 < self._column <= len(row.cells):
            last = _character_start(row.cells, self._column)
            if len(row.cells[last]) < _MAX_ESCAPE_CHARS:
                row.cells[last] += "".join(self._escapes)
            self._escapes.clear()

    @property
    def _overwritable_rows(self) -> int:
        """How many rows above the cursor the program may still overwrite."""
        if self._first_picture:  # its height is not known yet
            return _MAX_ROWS
        return self._reach + _EXTRA_ROWS

    def _is_finished(self, row: _Row, now: float) -> bool:
        return now >= self._finished_at(row)

    def _finished_at(self, row: _Row) -> float:
        in_reach = self._row <= self._overwritable_rows - _EXTRA_ROWS
        may_return = in_reach and not self._cursor_shown
        return row.visited_at + (_IN_REACH_SECONDS if may_return else _FINISHED_SECONDS)

    def _emit_first_row(self) -> None:
        row = self._rows.pop(0)
        self._row -= 1
        if row.drawn:
            self._lines.append(row.text)

    def _emit_all_rows(self) -> None:
        """Emit all rows above the cursor, which is in the last row, because no bar is left."""
        while self._row:
            self._emit_first_row()
        self._reach = self._plain_lines = 0
        self._cursor_shown = False


def _split_wide_character(cells: list[str], column: int) -> None:
    """Replace a wide character or a tab by blanks if `column` is in the middle of it."""
    if not 0 < column < len(cells) or cells[column]:
        return
    begin, end = _character_start(cells, column), column
    while end < len(cells) and not cells[end]:
        end += 1
    cells[begin:end] = [" "] * (end - begin)


def _character_start(cells: list[str], column: int) -> int:
    """Return the first column of the character before `column`."""
    begin = column - 1
    while begin and not cells[begin]:
        begin -= 1
    return begin


def _cells(text: str, column: int) -> list[str]:
    """Return one string per cell for text that begins in `column`."""
    if text.isascii() and "\t" not in text:
        return list(text)
    cells: list[str] = []
    for char in text:
        if char == "\t":
            cells += [char, *[""] * (7 - (column + len(cells)) % 8)]
        elif category(char) in _COMBINING:
            cells[_character_start(cells, len(cells))] += char
        else:
            cells += [char, ""] if east_asian_width(char) in "WF" else [char]
    return cells
