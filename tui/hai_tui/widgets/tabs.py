"""A line of tabs. The current tab is highlighted; a click switches to another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events
from textual.widget import Widget


class TabLine(Widget):
    """Tabs with names and titles; `on_choice` is called with the name of a clicked tab."""

    DEFAULT_CSS = "TabLine { height: 1; background: $surface; padding: 0 1; }"

    def __init__(
        self, tabs: Sequence[tuple[str, str]], current: str, on_choice: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._tabs, self._current, self._on_choice = tabs, current, on_choice

    def set_current(self, name: str) -> None:
        """Highlight another tab."""
        self._current = name
        self.refresh()

    def render(self) -> Text:
        """Return all titles; the current one is reversed, and in brackets for users who see no colours."""
        line = Text(no_wrap=True)
        for name, title in self._tabs:
            if name == self._current:
                line.append(f"[{title}]", "bold reverse")
            else:
                line.append(f" {title} ")
            line.append(" ")
        return line

    def on_click(self, event: events.Click) -> None:
        left = 1
        for name, title in self._tabs:
            left += Text(title).cell_len + 3
            if event.x < left:
                self._on_choice(name)
                return
