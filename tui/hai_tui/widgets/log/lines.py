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
from hai_tui.logs.rows import Look, Row
from hai_tui.logs.window import Line
from hai_tui.safe_regex import SafeRegex

_KEPT_CHARACTERS = 4 * 1024 * 1024  # of lines that were styled already


class LogLines:
    """Draws rows in the view's styles; `wanted` is marked, and once more in the line that is `here`."""

    def __init__(self, style: Callable[[str], Style], describe: Callable[[int], str]) -> None:
        self._style, self._describe = style, describe
        self.wanted: SafeRegex | None = None
        self.here: Line | None = None  # the last hit of a search
        self._styled: OrderedDict[Line, Text] = OrderedDict()
        self._kept = 0

    def forget(self) -> None:
        """Lines look otherwise now."""
        self._styled.clear()
        self._kept = 0

    def draw(self, row: Row, look: Look, left: int, width: int, console: Console) -> Strip:
        """The cells of a row that are seen from `left` on."""
        if row.begins:
            return Strip([Segment(self.separator(row, width), self._style("log--run"))])
        begin = row.piece * look.wrap if look.wrap else left
        return self._part(row.line, look, begin, begin + width, console)

    def separator(self, row: Row, width: int) -> str:
        """What stands before a run."""
        told = f"── {self._describe(row.line.run)} "
        return told + "─" * max(2, width - len(told))

    def _part(self, line: Line, look: Look, begin: int, end: int, console: Console) -> Strip:
        if self.wanted is None and line.text.isascii() and line.text.isprintable():
            prefix = look.prefix(line)
            label = Segment(prefix[begin:end], self._style("log--label"))
            size = len(prefix)
            return Strip([label, Segment(line.text[max(0, begin - size) : max(0, end - size)])])
        return Strip(self._text(line, look).render(console)).crop(begin, end)

    def _text(self, line: Line, look: Look) -> Text:
        """The line with its label, colours and hits; kept for the next time it is drawn."""
        found = self._styled.get(line)
        if found is not None:
            self._styled.move_to_end(line)
            return found
        made = self._styled[line] = self._make(line, look)
        self._kept += len(line.text)
        while self._kept > _KEPT_CHARACTERS and len(self._styled) > 1:
            self._kept -= len(self._styled.popitem(last=False)[0].text)
        return made

    def _make(self, line: Line, look: Look) -> Text:
        shown = styled(line.text)
        if self.wanted is not None:
            name = "log--here" if line is self.here else "log--hit"
            for hit in self.wanted.all(shown.plain):
                shown.stylize(self._style(name), *hit.span())
        made = Text(look.prefix(line), style="", end="")
        made.stylize(self._style("log--label"))
        return made.append_text(shown)
