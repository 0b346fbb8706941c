"""Draws a row of a log with its label, its colours and the hits of a search, and caches styled lines.

Of plain text only the visible cells are drawn, however long the line is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from hai_tui.logs.ansi_sanitize import styled
from hai_tui.logs.rows import LineFormat, Row
from hai_tui.logs.window import Line
from hai_tui.safe_regex import SafeRegex

_MAX_CACHED_CHARACTERS = 4 * 1024 * 1024


class LogRowRenderer:
    """Draws rows in the styles of the view; marks hits of `search_pattern`, and `current_hit` in another style."""

    def __init__(self, style: Callable[[str], Style], describe: Callable[[int], str]) -> None:
        self._style, self._describe = style, describe
        self.search_pattern: SafeRegex | None = None
        self.current_hit: Line | None = None  # the line of the hit that was shown last
        self._styled: OrderedDict[Line, Text] = OrderedDict()
        self._cached_characters = 0

    def clear_cache(self) -> None:
        """Style every line again when it is drawn next."""
        self._styled.clear()
        self._cached_characters = 0

    def draw(
        self, row: Row, line_format: LineFormat, left: int, width: int, console: Console
    ) -> Strip:
        """Return the visible cells of a row, from the cell `left` on."""
        if row.starts_run:
            return Strip([Segment(self.separator(row, width), self._style("log--run"))])
        begin = row.piece * line_format.wrap if line_format.wrap else left
        return self._draw_cells(row.line, line_format, begin, begin + width, console)

    def separator(self, row: Row, width: int) -> str:
        """Return the line before the first line of a run."""
        heading = f"── {self._describe(row.line.run)} "
        return heading + "─" * max(2, width - len(heading))

    def _draw_cells(
        self, line: Line, line_format: LineFormat, begin: int, end: int, console: Console
    ) -> Strip:
        if self.search_pattern is None and line.text.isascii() and line.text.isprintable():
            prefix = line_format.prefix(line)
            label = Segment(prefix[begin:end], self._style("log--label"))
            size = len(prefix)
            return Strip([label, Segment(line.text[max(0, begin - size) : max(0, end - size)])])
        return Strip(self._styled_text(line, line_format).render(console)).crop(begin, end)

    def _styled_text(self, line: Line, line_format: LineFormat) -> Text:
        cached = self._styled.get(line)
        if cached is not None:
            self._styled.move_to_end(line)
            return cached
        content = self._styled[line] = self._style_line(line, line_format)
        self._cached_characters += len(line.text)
        while self._cached_characters > _MAX_CACHED_CHARACTERS and len(self._styled) > 1:
            self._cached_characters -= len(self._styled.popitem(last=False)[0].text)
        return content

    def _style_line(self, line: Line, line_format: LineFormat) -> Text:
        content = styled(line.text)
        if self.search_pattern is not None:
            name = "log--here" if line is self.current_hit else "log--hit"
            for hit in self.search_pattern.all(content.plain):
                content.stylize(self._style(name), *hit.span())
        styled_line = Text(line_format.prefix(line), style="", end="")
        styled_line.stylize(self._style("log--label"))
        return styled_line.append_text(content)
