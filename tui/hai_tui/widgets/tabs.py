"""A line of tabs: the chosen one stands out, a click chooses another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events
from textual.widget import Widget


class TabLine(Widget):
    """Names with titles; `chosen` hears of clicks."""

    DEFAULT_CSS = "TabLine { height: 1; background: $surface; padding: 0 1; }"

    def __init__(
        self, tabs: Sequence[tuple[str, str]], current: str, chosen: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._tabs, self._current, self._chosen = tabs, current, chosen

    def show(self, name: str) -> None:
        """Another one is chosen."""
        self._current = name
        self.refresh()

    def render(self) -> Text:
        """All titles; the chosen one reversed, in brackets for who sees no colours."""
        line = Text(no_wrap=True)
        for name, title in self._tabs:
            chosen = name == self._current
            line.append(f"[{title}]" if chosen else f" {title} ", "bold reverse" if chosen else "")
            line.append(" ")
        return line

    def on_click(self, event: events.Click) -> None:
        """The tab below the pointer."""
        left = 1
        for name, title in self._tabs:
            left += Text(title).cell_len + 3
            if event.x < left:
                self._chosen(name)
                return
