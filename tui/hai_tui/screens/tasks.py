"""All tasks, live."""

from __future__ import annotations

from textual.widget import Widget

from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.screens.task_columns import columns
from hai_tui.widgets.virtual_table import VirtualTable


class TasksPage(Page):
    """The list that people keep open all day."""

    def content(self) -> Widget:
        """The table."""
        return VirtualTable([c for c in columns() if not c.optional], self._row, self.hai.now)

    def _row(self, id: int) -> object:
        model = self.hai.session.tasks
        return model.get(id) if model else None

    def opened(self) -> None:
        """Show what there is."""
        self.tasks_changed(set())

    def tasks_changed(self, ids: set[int]) -> None:
        """Show it again."""
        model, table = self.hai.session.tasks, self.query_one(VirtualTable)
        table.empty = text("tasks.empty" if model and model.loaded else "loading")
        table.show(sorted(model.tasks, reverse=True) if model else ())
