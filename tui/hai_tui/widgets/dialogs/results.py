"""A dialog that shows the result of an action on each of several tasks, until it is closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from hai_tui.style.theme import tones
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.plain import Static, grid, plain


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one task: its name, whether the action succeeded, and a message."""

    name: str
    succeeded: bool
    message: str


class ResultsDialog(Dialog[None]):
    """Shows one line for each result, failures first."""

    DEFAULT_CSS = """
    ResultsDialog { align: center middle; background: $background 60%; }
    ResultsDialog > VerticalScroll { width: 90%; max-width: 110; height: auto; max-height: 85%;
        border: round $primary; background: $surface; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", show=False)]

    def __init__(self, title: str, results: Sequence[Result]) -> None:
        super().__init__()
        self._title, self._results = title, sorted(results, key=lambda result: result.succeeded)

    def compose(self) -> ComposeResult:
        styles = tones(self.app.current_theme)
        lines = grid(padding=(0, 1))
        for result in self._results:
            glyph = Text("✓", styles["done"]) if result.succeeded else Text("✗", styles["bad"])
            lines.add_row(glyph, result.name, result.message)
        with VerticalScroll() as box:
            box.border_title = plain(self._title)
            yield Static(lines)
