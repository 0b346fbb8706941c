"""Draws a window of a log: only rows that are seen are styled, so neither a long log nor an endless line costs more.

It receives lines and posts that it was scrolled to an end; who reads from the server is logs/reader.py.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar

from rich.segment import Segment
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from hai_tui.logs.harmless import plain, styled
from hai_tui.logs.rows import Look, Row, cells, rows_of
from hai_tui.logs.search import matches, next_hit
from hai_tui.logs.window import Change, Line, Window
from hai_tui.widgets.scrolled import Scrolled

_KEPT_CHARACTERS = 4 * 1024 * 1024  # of lines that were styled already


class LogView(Scrolled, can_focus=True):
    """Shows a window. `following`: it stays at the end while lines come; scrolling up ends that."""

    DEFAULT_CSS = """
    LogView { height: 1fr; background: $background; scrollbar-size-vertical: 1;
              scrollbar-size-horizontal: 1; scrollbar-gutter: stable; }
    LogView > .log--label { color: $secondary; }
    LogView > .log--run { color: $accent; text-style: bold; }
    LogView > .log--hit { background: $warning; color: $background; }
    LogView > .log--here { background: $primary 40%; text-style: bold; }
    LogView > .log--empty { color: $foreground 70%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log--label", "log--run", "log--hit", "log--here", "log--empty",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "lines(-1)", show=False),
        Binding("down,j", "lines(1)", show=False),
        Binding("pageup,ctrl+b", "pages(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "pages(1)", show=False),
        Binding("left", "side(-16)", show=False),
        Binding("right", "side(16)", show=False),
    ]

    class End(Message):
        """It was scrolled as far as it goes; there may be more in the log."""

        def __init__(self, view: LogView, *, first: bool) -> None:
            super().__init__()
            self.view, self.first = view, first

    class Scrolled(Message):
        """Other lines are seen."""

        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view

    def __init__(
        self, window: Window, describe: Callable[[int], str], *, labels: bool = False
    ) -> None:
        super().__init__()
        self._window, self._describe = window, describe
        self.look = Look(labels=labels)
        self.following = True
        self.wraps = False
        self.empty = ""
        self.wanted: re.Pattern[str] | None = None
        self._rows: list[Row] = []
        self._widest = 0
        self._here: Line | None = None  # the last hit of a search
        self._styled: OrderedDict[Line, Text] = OrderedDict()
        self._kept = 0

    @property
    def _across(self) -> int:
        """Cells of a row: without the bar."""
        return self.scrollable_content_region.width

    @property
    def rows(self) -> Sequence[Row]:
        """What it shows, from the first line of the window to the last."""
        return self._rows

    def apply(self, change: Change | None) -> None:
        """The window is other than before; None: it is another part of the log."""
        self._update(change)
        self._settle()

    def _update(self, change: Change | None) -> None:
        if change is None:
            self._here = None
            self._rebuild()
        elif change.before or change.lost_before or change.lost_after:
            self._moved(change)
        elif change.after or change.replaced:
            self._renew(change)

    def set_look(self, look: Look, *, wraps: bool) -> None:
        """Show the same lines in another way; the first visible one stays."""
        first = self._row_at(self.scroll_offset.y)
        self.wraps = wraps
        self.look = replace(look, wrap=max(1, self._across) if wraps else 0)
        self._rebuild()
        self._settle()
        if not self.following and first is not None:
            self._go_to(first.line, middle=False)

    def search(self, wanted: re.Pattern[str] | None) -> None:
        """Mark what is wanted."""
        self.wanted, self._here = wanted, None
        self._forget()

    def next_hit(self, *, back: bool = False) -> bool:
        """Go to the nearest line that has what is wanted, from the last one on; False: none in the window."""
        if self.wanted is None:
            return False
        lines = [row.line for row in self._rows if not row.begins and not row.piece]
        test = matches(self.wanted)
        hit = next_hit(lines, self._start(lines, back=back), test, back=back)
        if hit is not None:
            self.show_hit(lines[hit])
        return hit is not None

    def show_hit(self, line: Line) -> None:
        """Bring a line into the middle and mark it as the one that was found."""
        self._here, self.following = line, False
        self._go_to(line, middle=True)
        self._reveal(line)
        self._forget()

    def show_line(self, line: Line) -> None:
        """Bring a line, with the separator before it, to the top."""
        self.following = False
        self._go_to(line, middle=False)

    def set_labels(self, labels: bool) -> None:
        """Say before each line of which rank it is."""
        self.look = replace(self.look, labels=labels)

    def action_lines(self, count: int) -> None:
        """Scroll by lines; scrolling up ends following."""
        self._scroll(self.scroll_offset.y + count, count)

    def action_pages(self, count: int) -> None:
        """Scroll by screens."""
        self._scroll(self.scroll_offset.y + count * max(1, self.size.height - 1), count)

    def action_side(self, count: int) -> None:
        """Scroll sideways."""
        self.scroll_to(x=max(0, self.scroll_offset.x + count), animate=False)

    def to_end(self) -> None:
        """Follow again."""
        self.following = True
        self._settle()

    def to_start(self) -> None:
        """To the first line that is held."""
        self.following = False
        self.scroll_to(y=0, animate=False, force=True)

    def visible_text(self) -> str:
        """What is seen now, for the clipboard."""
        top = self.scroll_offset.y
        rows = [row for row in self._rows[top : top + self.size.height] if not row.piece]
        lines = [self._separator(row) if row.begins else plain(row.line.text) for row in rows]
        return "\n".join(lines) + "\n"

    def on_resize(self) -> None:
        """Folded lines are folded anew."""
        if self.wraps and self.look.wrap != self._across:
            self.set_look(self.look, wraps=True)
        self._settle()

    def watch_scroll_y(self, old: float, new: float) -> None:
        """The wheel and the bar scroll too."""
        super().watch_scroll_y(old, new)
        self.post_message(self.Scrolled(self))
        if new < old and new < self.max_scroll_y and not self._settling:
            self.following = False
        if new <= 0 < old and not self._settling:
            self.post_message(self.End(self, first=True))
        elif new >= self.max_scroll_y > 0 and new > old and not self._settling:
            self.post_message(self.End(self, first=False))

    _settling = False

    def _scroll(self, y: int, direction: int) -> None:
        at_edge = y < 0 if direction < 0 else y > self.max_scroll_y
        if direction < 0:
            self.following = False
        edge_before = self.scroll_offset.y == (0 if direction < 0 else self.max_scroll_y)
        self.scroll_to(y=min(max(0, y), self.max_scroll_y), animate=False, force=True)
        if at_edge and edge_before:
            self.post_message(self.End(self, first=direction < 0))

    def _settle(self) -> None:
        """Lay out; at the end while following."""
        self._settling = True
        self.measure(Size(self._widest, len(self._rows)))
        self._settling = False
        if self.following:
            self._jump(round(self.max_scroll_y))
        self.refresh()

    def _rebuild(self) -> None:
        self._rows = rows_of(self._window, self.look)
        self._widest = self._width(self._rows)

    def _renew(self, change: Change) -> None:
        """The cheap way: only the rows of lines that are new, or look otherwise, and of those after them."""
        place = max(0, min([len(self._window) - change.after, *change.replaced]))
        held = self._marks(place, last=True)
        end = next(
            (i for i in range(len(self._rows), 0, -1) if id(self._rows[i - 1].line) in held), 0
        )
        run = self._rows[end - 1].line.run if end else 0
        rows = rows_of(self._window.since(place), self.look, run)
        self._rows[end:] = rows
        self._widest = max(self._widest, self._width(rows))

    def _marks(self, count: int, *, last: bool) -> set[int]:
        """Lines that mark where the rows of the first so many begin or end: a filter may have left out any of them."""
        lines = islice(self._window, count)
        if self.look.only is None:
            lines = islice(self._window.since(count - 1), 1) if last and count else islice(lines, 1)
        return set(map(id, lines))

    def _moved(self, change: Change) -> None:
        """What is seen stays where it is while rows come and go above it."""
        top = self._row_at(self.scroll_offset.y)
        if change.before or change.lost_after:
            self._rebuild()
        else:
            self._lose()
            self._renew(change)
        if not self.following and top is not None and (change.before or change.lost_before):
            self._settle()
            self._go_to(top.line, middle=False)

    def _lose(self) -> None:
        """Rows of lines that have left at the beginning go."""
        held = self._marks(len(self._window), last=False)
        begin = next((i for i, row in enumerate(self._rows) if id(row.line) in held), None)
        first = [] if begin is None or self._rows[begin].begins else [self._rows[begin].line]
        self._rows[:begin] = [Row(line, begins=True) for line in first]

    def _width(self, rows: Sequence[Row]) -> int:
        if self.wraps:
            return 0
        return max((cells(row.line, self.look) for row in rows if not row.begins), default=0)

    def _row_at(self, y: int) -> Row | None:
        return self._rows[y] if 0 <= y < len(self._rows) else None

    def _start(self, lines: Sequence[Line], *, back: bool) -> int:
        """Beyond the last hit; else what is seen first, looking back: what is seen last."""
        step = -1 if back else 1
        if self._here is not None and self._here in lines:
            return _place(lines, self._here) + step
        if self.following and back:
            return len(lines) - 1
        row = self._row_at(self.scroll_offset.y)
        return _place(lines, row.line) if row is not None else 0

    def _go_to(self, line: Line, *, middle: bool) -> None:
        place = next((i for i, row in enumerate(self._rows) if row.line is line), None)
        if place is not None:
            up = self.size.height // 2 if middle else 0
            self._jump(max(0, place - up))

    def _jump(self, y: int) -> None:
        self._settling = True
        self.scroll_to(y=y, animate=False, force=True, immediate=True)
        self._settling = False

    def _reveal(self, line: Line) -> None:
        """Scroll sideways to the hit in a long line."""
        found = self.wanted.search(plain(line.text)) if self.wanted else None
        if found is None or self.wraps:
            return
        begin = len(self.look.prefix(line)) + found.start()
        left, width = self.scroll_offset.x, self.size.width
        if not left <= begin < left + width - 4:
            self.scroll_to(x=max(0, begin - width // 3), animate=False, force=True)

    def _forget(self) -> None:
        self._styled.clear()
        self._kept = 0
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        left, top = self.scroll_offset
        row, width = self._row_at(top + y), self._across
        if row is None:
            told = self.empty if not self._rows and y == 1 else ""
            style = self.get_component_rich_style("log--empty")
            return Strip([Segment(f" {told}", style)]).crop_extend(0, width, self.rich_style)
        if row.begins:
            return self._run_line(row).crop_extend(0, width, self.rich_style)
        begin = row.piece * self.look.wrap if self.wraps else left
        strip = self._part(row.line, begin, begin + width)
        return strip.extend_cell_length(width).apply_style(self.rich_style)

    def _part(self, line: Line, begin: int, end: int) -> Strip:
        """Some cells of a line; of plain text no more than these are looked at, however long it is."""
        if self.wanted is None and line.text.isascii() and line.text.isprintable():
            prefix = self.look.prefix(line)
            label = Segment(prefix[begin:end], self.get_component_rich_style("log--label"))
            size = len(prefix)
            return Strip([label, Segment(line.text[max(0, begin - size) : max(0, end - size)])])
        return Strip(self._text(line).render(self.app.console)).crop(begin, end)

    def _run_line(self, row: Row) -> Strip:
        style = self.get_component_rich_style("log--run")
        return Strip([Segment(self._separator(row), style)])

    def _separator(self, row: Row) -> str:
        told = f"── {self._describe(row.line.run)} "
        return told + "─" * max(2, self._across - len(told))

    def _text(self, line: Line) -> Text:
        """The line with its label, colours and hits; kept for the next time it is drawn."""
        found = self._styled.get(line)
        if found is not None:
            self._styled.move_to_end(line)
            return found
        text = self._make(line)
        self._styled[line] = text
        self._kept += len(line.text)
        while self._kept > _KEPT_CHARACTERS and len(self._styled) > 1:
            self._kept -= len(self._styled.popitem(last=False)[0].text)
        return text

    def _make(self, line: Line) -> Text:
        text = styled(line.text)
        if self.wanted is not None:
            name = "log--here" if line is self._here else "log--hit"
            text.highlight_regex(self.wanted, style=self.get_component_rich_style(name))
        label = self.get_component_rich_style("log--label")
        made = Text(self.look.prefix(line), style="", end="")
        made.stylize(label)
        return made.append_text(text)


def _place(lines: Sequence[Line], line: Line) -> int:
    return next((i for i, each in enumerate(lines) if each is line), 0)
