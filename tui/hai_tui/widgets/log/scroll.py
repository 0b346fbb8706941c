"""A window of a log on the screen, scrolled and followed: only rows that are seen are styled.

It receives lines and posts that it was scrolled to an end; who reads from the server is logs/reader.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from hai_tui.logs.ansi_sanitize import plain
from hai_tui.logs.row_cache import RowCache
from hai_tui.logs.rows import LineFormat, Row
from hai_tui.logs.window import Change, Line, Window
from hai_tui.widgets.log.lines import LogRowRenderer
from hai_tui.widgets.scroll_view import SizedScrollView


class LogScroll(SizedScrollView, can_focus=True):
    """Shows a window. `following`: it stays at the end while lines come; scrolling up ends that."""

    DEFAULT_CSS = """
    LogScroll { height: 1fr; background: $background; scrollbar-size-vertical: 1;
                scrollbar-size-horizontal: 1; scrollbar-gutter: stable; }
    LogScroll > .log--label { color: $secondary; }
    LogScroll > .log--run { color: $accent; text-style: bold; }
    LogScroll > .log--hit { background: $warning; color: $background; }
    LogScroll > .log--here { background: $primary 40%; text-style: bold; }
    LogScroll > .log--empty { color: $foreground 70%; }
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

    class End(Message, namespace="log_view"):
        """It was scrolled as far as it goes; there may be more in the log."""

        def __init__(self, view: LogScroll, *, first: bool) -> None:
            super().__init__()
            self.view, self.first = view, first

    class Moved(Message, namespace="log_view"):
        """Other lines are seen."""

        def __init__(self, view: LogScroll) -> None:
            super().__init__()
            self.view = view

    def __init__(
        self, window: Window, describe: Callable[[int], str], *, labels: bool = False
    ) -> None:
        super().__init__()
        self._row_cache = RowCache(window, LineFormat(labels=labels))
        self._lines = LogRowRenderer(self.get_component_rich_style, describe)
        self.following = True
        self.empty = ""

    @property
    def line_format(self) -> LineFormat:
        """How lines are shown."""
        return self._row_cache.line_format

    @property
    def wraps(self) -> bool:
        """True: long lines are folded."""
        return self.line_format.wrap > 0

    @property
    def rows(self) -> Sequence[Row]:
        """What it shows, from the first line of the window to the last."""
        return self._row_cache.rows

    @property
    def _across(self) -> int:
        """Cells of a row: without the bar."""
        return self.scrollable_content_region.width

    # What it shows.

    def apply(self, change: Change | None) -> None:
        """The window is other than before; None: it is another part of the log."""
        top = self._top()
        if change is None:
            self._lines.here = None
            self._row_cache.rebuild()
        else:
            self._row_cache.apply(change)
        self._settle()
        if change is not None and (change.before or change.dropped_before):
            self._restore_top(top)

    def set_line_format(self, line_format: LineFormat, *, wraps: bool) -> None:
        """Show the same lines in another way; the first visible one stays."""
        top = self._top()
        self._row_cache.line_format = replace(
            line_format, wrap=max(1, self._across) if wraps else 0
        )
        self._row_cache.rebuild()
        self.forget()
        self._settle()
        self._restore_top(top)

    def set_labels(self, labels: bool) -> None:
        """Say before each line of which rank it is."""
        self._row_cache.line_format = replace(self.line_format, labels=labels)
        self.forget()

    def forget(self) -> None:
        """Every line looks otherwise."""
        self._lines.forget()
        self.refresh()

    def notify_style_update(self) -> None:
        """Another theme, or the focus came or went."""
        super().notify_style_update()
        self._lines.forget()

    def visible_text(self) -> str:
        """What is seen now, for the clipboard."""
        top = self.scroll_offset.y
        rows = [row for row in self.rows[top : top + self.size.height] if not row.piece]
        across = self._across
        lines = [
            self._lines.separator(row, across) if row.begins else plain(row.line.text)
            for row in rows
        ]
        return "\n".join(lines) + "\n"

    # Scrolling.

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

    def show_line(self, line: Line) -> None:
        """Bring a line, with the separator before it, to the top."""
        self.following = False
        self._scroll_to_row_of(line)

    def on_resize(self) -> None:
        """Folded lines are folded anew."""
        if self.wraps and self.line_format.wrap != self._across:
            self.set_line_format(self.line_format, wraps=True)
        self._settle()

    def watch_scroll_y(self, old: float, new: float) -> None:
        """The wheel and the bar scroll too."""
        super().watch_scroll_y(old, new)
        self.post_message(self.Moved(self))
        if self._settling:
            return
        if new < old and new < self.max_scroll_y:
            self.following = False
        if new <= 0 < old:
            self.post_message(self.End(self, first=True))
        elif new >= self.max_scroll_y > 0 and new > old:
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
        self.measure(Size(self._row_cache.max_width, len(self.rows)))
        self._settling = False
        if self.following:
            self._jump(round(self.max_scroll_y))
        self.refresh()

    def _top(self) -> Row | None:
        """The first row that is seen."""
        return self._row_cache.at(self.scroll_offset.y)

    def _restore_top(self, top: Row | None) -> None:
        """What was seen first is so again, unless the end is followed."""
        if not self.following and top is not None:
            self._scroll_to_row_of(top.line)

    def _scroll_to_row_of(self, line: Line, *, above: int = 0) -> None:
        """Bring a line to the top, or so many rows below it."""
        index = self._row_cache.index_of(line)
        if index is not None:
            self._jump(max(0, index - above))

    def _jump(self, y: int) -> None:
        self._settling = True
        self.scroll_to(y=y, animate=False, force=True, immediate=True)
        self._settling = False

    # Drawing.

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        left, top = self.scroll_offset
        row, width = self._row_cache.at(top + y), self._across
        if row is None:
            sentence = self.empty if not self.rows and y == 1 else ""
            style = self.get_component_rich_style("log--empty")
            return Strip([Segment(f" {sentence}", style)]).crop_extend(0, width, self.rich_style)
        strip = self._lines.draw(row, self.line_format, left, width, self.app.console)
        if row.begins:
            return strip.crop_extend(0, width, self.rich_style)
        return strip.extend_cell_length(width).apply_style(self.rich_style)
