"""One task."""

from __future__ import annotations

from textual.widget import Widget
from textual.widgets import Static

from hai_tui.screens.page import Page


class TaskPage(Page):
    """What there is to know of one task."""

    def __init__(self, ref: str) -> None:
        super().__init__()
        self.ref = ref

    def content(self) -> Widget:
        """Its facts."""
        return Static()
