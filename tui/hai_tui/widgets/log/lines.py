"""How a row of a log is drawn: its label, its colours, what is looked for. What was styled is kept.

Of plain text no more cells are looked at than are seen, however long the line is.
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

_CACHE_CHARACTERS = 4 * 1024 * 1024  # of lines that were styled already


class LogRowRenderer:
    """Draws rows in the view's styles; `search_pattern` is marked, and once more in the line that is `here`."""

    def __init__(self, style: Callable[[str], Style], describe: Callable[[int], str]) -> None:
        self._style, self._describe = style, describe
        self.search_pattern: SafeRegex | None = None
        self.here: Line | None = None  # the last hit of a search
        self._styled: OrderedDict[Line, Text] = OrderedDict()
        self._cached_characters = 0

    def forget(self) -> None:
        """Lines look otherwise now."""
        self._styled.clear()
        self._cached_characters = 0

    def draw(
        self, row: Row, line_format: LineFormat, left: int, width: int, console: Console
    ) -> Strip:
        """The cells of a row that are seen from `left` on."""
        if row.begins:
            return Strip([Segment(self.separator(row, width), self._style("log--run"))])
        begin = row.piece * line_format.wrap if line_format.wrap else left
        return self._part(row.line, line_format, begin, begin + width, console)

    def separator(self, row: Row, width: int) -> str:
        """What stands before a run."""
        heading = f"── {self._describe(row.line.run)} "
        return heading + "─" * max(2, width - len(heading))

    def _part(
        self, line: Line, line_format: LineFormat, begin: int, end: int, console: Console
    ) -> Strip:
        if self.search_pattern is None and line.text.isascii() and line.text.isprintable():
            prefix = line_format.prefix(line)
            label = Segment(prefix[begin:end], self._style("log--label"))
            size = len(prefix)
            return Strip([label, Segment(line.text[max(0, begin - size) : max(0, end - size)])])
        return Strip(self._text(line, line_format).render(console)).crop(begin, end)

    def _text(self, line: Line, line_format: LineFormat) -> Text:
        """The line with its label, colours and hits; kept for the next time it is drawn."""
        found = self._styled.get(line)
        if found is not None:
            self._styled.move_to_end(line)
            return found
        made = self._styled[line] = self._make(line, line_format)
        self._cached_characters += len(line.text)
        while self._cached_characters > _CACHE_CHARACTERS and len(self._styled) > 1:
            self._cached_characters -= len(self._styled.popitem(last=False)[0].text)
        return made

    def _make(self, line: Line, line_format: LineFormat) -> Text:
        content = styled(line.text)
        if self.search_pattern is not None:
            name = "log--here" if line is self.here else "log--hit"
            for hit in self.search_pattern.all(content.plain):
                content.stylize(self._style(name), *hit.span())
        made = Text(line_format.prefix(line), style="", end="")
        made.stylize(self._style("log--label"))
        return made.append_text(content)
