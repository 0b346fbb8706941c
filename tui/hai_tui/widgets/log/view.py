"""Shows a window of a log, which the user scrolls, follows and searches. Only visible rows are styled.

The view receives lines and posts a message when it is scrolled to an end; logs/reader.py reads from the server.
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
from hai_tui.logs.search import matches, next_hit
from hai_tui.logs.window import Change, Line, Window
from hai_tui.safe_regex import SafeRegex
from hai_tui.widgets.log.lines import LogRowRenderer
from hai_tui.widgets.scroll_view import SizedScrollView


class LogView(SizedScrollView, can_focus=True):
    """Shows a window of a log. While `following` is true, it scrolls to new lines; scrolling up ends following."""

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
        """The view was scrolled to its first or last line; the log may have more."""

        def __init__(self, view: LogView, *, first: bool) -> None:
            super().__init__()
            self.view, self.first = view, first

    class Moved(Message):
        """Other lines are visible."""

        def __init__(self, view: LogView) -> None:
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
        return self._row_cache.line_format

    @property
    def wraps(self) -> bool:
        """Return whether long lines are folded."""
        return self.line_format.wrap > 0

    @property
    def rows(self) -> Sequence[Row]:
        """Return the rows of the window."""
        return self._row_cache.rows

    @property
    def _row_width(self) -> int:
        """Return the cells of a row, without the scroll bar."""
        return self.scrollable_content_region.width

    # Content.

    def apply(self, change: Change | None) -> None:
        """Show the window after a change; None means that it has another part of the log."""
        top = self._top_row()
        if change is None:
            self._lines.current_hit = None
            self._row_cache.rebuild()
        else:
            self._row_cache.apply(change)
        self._lay_out()
        if change is not None and (change.before or change.dropped_before):
            self._restore_top(top)

    def set_line_format(self, line_format: LineFormat, *, wraps: bool) -> None:
        """Show the same lines in another format; the first visible line stays."""
        top = self._top_row()
        self._row_cache.line_format = replace(
            line_format, wrap=max(1, self._row_width) if wraps else 0
        )
        self._row_cache.rebuild()
        self.redraw()
        self._lay_out()
        self._restore_top(top)

    def set_labels(self, labels: bool) -> None:
        """Show or hide the rank before each line."""
        self._row_cache.line_format = replace(self.line_format, labels=labels)
        self.redraw()

    def redraw(self) -> None:
        """Style and draw every line again."""
        self._lines.clear_cache()
        self.refresh()

    def notify_style_update(self) -> None:
        """Style lines again after a change of the theme or of the focus."""
        super().notify_style_update()
        self._lines.clear_cache()

    def visible_text(self) -> str:
        """Return the visible lines for the clipboard."""
        top = self.scroll_offset.y
        rows = [row for row in self.rows[top : top + self.size.height] if not row.piece]
        width = self._row_width
        lines = [
            self._lines.separator(row, width) if row.starts_run else plain(row.line.text)
            for row in rows
        ]
        return "\n".join(lines) + "\n"

    # Scrolling.

    def action_lines(self, count: int) -> None:
        self._scroll(self.scroll_offset.y + count, count)

    def action_pages(self, count: int) -> None:
        self._scroll(self.scroll_offset.y + count * max(1, self.size.height - 1), count)

    def action_side(self, count: int) -> None:
        self.scroll_to(x=max(0, self.scroll_offset.x + count), animate=False)

    def to_end(self) -> None:
        """Scroll to the end and follow it."""
        self.following = True
        self._lay_out()

    def to_start(self) -> None:
        """Scroll to the first loaded line."""
        self.following = False
        self.scroll_to(y=0, animate=False, force=True)

    def show_line(self, line: Line) -> None:
        """Scroll a line, with the separator before it, to the top."""
        self.following = False
        self._scroll_to_row_of(line)

    def on_resize(self) -> None:
        """Fold lines to the new width."""
        if self.wraps and self.line_format.wrap != self._row_width:
            self.set_line_format(self.line_format, wraps=True)
        self._lay_out()

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Handle scrolling by the wheel or the scroll bar, too: stop following, and post `End` at an end."""
        super().watch_scroll_y(old, new)
        self.post_message(self.Moved(self))
        if self._scrolls_itself:
            return
        if new < old and new < self.max_scroll_y:
            self.following = False
        if new <= 0 < old:
            self.post_message(self.End(self, first=True))
        elif new >= self.max_scroll_y > 0 and new > old:
            self.post_message(self.End(self, first=False))

    _scrolls_itself = False

    def _scroll(self, y: int, direction: int) -> None:
        beyond_end = y < 0 if direction < 0 else y > self.max_scroll_y
        if direction < 0:
            self.following = False
        was_at_end = self.scroll_offset.y == (0 if direction < 0 else self.max_scroll_y)
        self.scroll_to(y=min(max(0, y), self.max_scroll_y), animate=False, force=True)
        if beyond_end and was_at_end:
            self.post_message(self.End(self, first=direction < 0))

    def _lay_out(self) -> None:
        """Measure the rows again; scroll to the end while following."""
        self._scrolls_itself = True
        self.measure(Size(self._row_cache.max_width, len(self.rows)))
        self._scrolls_itself = False
        if self.following:
            self._jump(round(self.max_scroll_y))
        self.refresh()

    def _top_row(self) -> Row | None:
        return self._row_cache.at(self.scroll_offset.y)

    def _restore_top(self, top: Row | None) -> None:
        """Scroll back to the row that was at the top, unless the end is followed."""
        if not self.following and top is not None:
            self._scroll_to_row_of(top.line)

    def _scroll_to_row_of(self, line: Line, *, rows_above: int = 0) -> None:
        """Scroll a line to the top, or to so many rows below it."""
        index = self._row_cache.index_of(line)
        if index is not None:
            self._jump(max(0, index - rows_above))

    def _jump(self, y: int) -> None:
        self._scrolls_itself = True
        self.scroll_to(y=y, animate=False, force=True, immediate=True)
        self._scrolls_itself = False

    # Searching.

    @property
    def search_pattern(self) -> SafeRegex | None:
        return self._lines.search_pattern

    @property
    def current_hit(self) -> Line | None:
        """Return the line of the hit that was shown last."""
        return self._lines.current_hit

    def search(self, search_pattern: SafeRegex | None) -> None:
        """Mark the hits of a pattern."""
        self._lines.search_pattern, self._lines.current_hit = search_pattern, None
        self.redraw()

    def next_hit(self, *, back: bool = False) -> bool:
        """Show the next loaded line that matches; return False if there is none."""
        if self.search_pattern is None:
            return False
        lines = [row.line for row in self.rows if not row.starts_run and not row.piece]
        test = matches(self.search_pattern)
        hit = next_hit(lines, self._search_start(lines, back=back), test, back=back)
        if hit is not None:
            self.show_hit(lines[hit])
        return hit is not None

    def show_hit(self, line: Line) -> None:
        """Scroll a line to the middle, and mark it as the current hit."""
        self._lines.current_hit, self.following = line, False
        self._scroll_to_row_of(line, rows_above=self.size.height // 2)
        self._scroll_sideways_to_hit(line)
        self.redraw()

    def _search_start(self, lines: Sequence[Line], *, back: bool) -> int:
        """Return the index after the current hit; without one, that of the first (backwards: last) visible line."""
        step = -1 if back else 1
        if self.current_hit is not None and self.current_hit in lines:
            return _index_of(lines, self.current_hit) + step
        if self.following and back:
            return len(lines) - 1
        row = self._top_row()
        return _index_of(lines, row.line) if row is not None else 0

    def _scroll_sideways_to_hit(self, line: Line) -> None:
        match = self.search_pattern.search(plain(line.text)) if self.search_pattern else None
        if match is None or self.wraps:
            return
        begin = len(self.line_format.prefix(line)) + match.start()
        left, width = self.scroll_offset.x, self.size.width
        if not left <= begin < left + width - 4:
            self.scroll_to(x=max(0, begin - width // 3), animate=False, force=True)

    # Drawing.

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        row, width = self._row_cache.at(top + y), self._row_width
        if row is None:
            sentence = self.empty if not self.rows and y == 1 else ""
            style = self.get_component_rich_style("log--empty")
            return Strip([Segment(f" {sentence}", style)]).crop_extend(0, width, self.rich_style)
        strip = self._lines.draw(row, self.line_format, left, width, self.app.console)
        if row.starts_run:
            return strip.crop_extend(0, width, self.rich_style)
        return strip.extend_cell_length(width).apply_style(self.rich_style)


def _index_of(lines: Sequence[Line], line: Line) -> int:
    return next((i for i, each in enumerate(lines) if each is line), 0)
