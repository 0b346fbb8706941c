"""A log on the screen in which one looks for text."""

from __future__ import annotations

from collections.abc import Sequence

from hai_tui.logs.ansi_sanitize import plain
from hai_tui.logs.search import matches, next_hit
from hai_tui.logs.window import Line
from hai_tui.safe_regex import SafeRegex
from hai_tui.widgets.log.scroll import LogScroll


class LogView(LogScroll):
    """Marks what is wanted and goes from hit to hit."""

    @property
    def search_pattern(self) -> SafeRegex | None:
        """What is looked for."""
        return self._lines.search_pattern

    @property
    def here(self) -> Line | None:
        """The last hit."""
        return self._lines.here

    def search(self, search_pattern: SafeRegex | None) -> None:
        """Mark what is wanted."""
        self._lines.search_pattern, self._lines.here = search_pattern, None
        self.forget()

    def next_hit(self, *, back: bool = False) -> bool:
        """Go to the nearest line that has what is wanted, from the last one on; False: none in the window."""
        if self.search_pattern is None:
            return False
        lines = [row.line for row in self.rows if not row.begins and not row.piece]
        test = matches(self.search_pattern)
        hit = next_hit(lines, self._start(lines, back=back), test, back=back)
        if hit is not None:
            self.show_hit(lines[hit])
        return hit is not None

    def show_hit(self, line: Line) -> None:
        """Bring a line into the middle and mark it as the one that was found."""
        self._lines.here, self.following = line, False
        self._scroll_to_row_of(line, above=self.size.height // 2)
        self._reveal(line)
        self.forget()

    def _start(self, lines: Sequence[Line], *, back: bool) -> int:
        """Beyond the last hit; else what is seen first, looking back: what is seen last."""
        step = -1 if back else 1
        if self.here is not None and self.here in lines:
            return _index_of(lines, self.here) + step
        if self.following and back:
            return len(lines) - 1
        row = self._top()
        return _index_of(lines, row.line) if row is not None else 0

    def _reveal(self, line: Line) -> None:
        """Scroll sideways to the hit in a long line."""
        found = self.search_pattern.search(plain(line.text)) if self.search_pattern else None
        if found is None or self.wraps:
            return
        begin = len(self.line_format.prefix(line)) + found.start()
        left, width = self.scroll_offset.x, self.size.width
        if not left <= begin < left + width - 4:
            self.scroll_to(x=max(0, begin - width // 3), animate=False, force=True)


def _index_of(lines: Sequence[Line], line: Line) -> int:
    return next((i for i, each in enumerate(lines) if each is line), 0)
