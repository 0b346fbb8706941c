"""A table that handles keys and the mouse: cursor, marks, scrolling. `table/table_view.py` draws it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from hai_tui.formatting.cells import GAP, Column
from hai_tui.widgets.table.row_lines import MARGIN
from hai_tui.widgets.table.table_view import TableView

Id = Hashable


class VirtualTable(TableView, can_focus=True):
    """A table of any length. Posts Moved, Opened, Marked and HeaderClicked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home,g", "move_to(0)", show=False),
        Binding("end,G", "move_to(-1)", show=False),
        Binding("left", "side(-8)", show=False),
        Binding("right", "side(8)", show=False),
        Binding("enter", "open", show=False),
        Binding("space", "mark", show=False),
        Binding("ctrl+space,ctrl+@", "mark_range", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, table: VirtualTable, id: Id | None) -> None:
            super().__init__()
            self.table, self.id = table, id

    class Opened(Message):
        """The user has opened a row by enter or a double click."""

        def __init__(self, table: VirtualTable, id: Id) -> None:
            super().__init__()
            self.table, self.id = table, id

    class Marked(Message):
        """The marks have changed."""

        def __init__(self, table: VirtualTable) -> None:
            super().__init__()
            self.table = table

    class HeaderClicked(Message):
        """The title of a column was clicked."""

        def __init__(self, table: VirtualTable, key: str) -> None:
            super().__init__()
            self.table, self.key = table, key

    def cursor_moved(self) -> None:
        self.post_message(self.Moved(self, self.cursor_id))

    def on_resize(self) -> None:
        """Choose the columns that fit, and keep the cursor visible."""
        if self.scrollable_content_region.width != self._width:
            self._lay_out()
        if self.ids:
            self._show_cursor()

    def select(self, id: Any) -> bool:
        """Move the cursor to a row; return False if the table does not show it."""
        index = self._rows.index_of(id)
        if index >= 0:
            self._move_to(index)
        return index >= 0

    def unmark(self) -> None:
        """Remove all marks."""
        self.marked.clear()
        self._marks_changed()

    def mark_all(self) -> None:
        self._rows.mark_all()
        self._marks_changed()

    # Keys and the mouse.

    def action_move(self, lines: int) -> None:
        self._move_to(self._rows.cursor + lines)

    def action_page(self, pages: int) -> None:
        self._move_to(self._rows.cursor + pages * max(1, self.size.height - 2))

    def action_move_to(self, index: int) -> None:
        """Move the cursor to the first (0) or last (-1) row."""
        self._move_to(len(self.ids) - 1 if index < 0 else index)

    def action_side(self, cells: int) -> None:
        self.scroll_to(x=self.scroll_offset.x + cells, animate=False)

    def action_open(self) -> None:
        if self.ids:
            self.post_message(self.Opened(self, self.cursor_id))

    def action_mark(self) -> None:
        """Mark or unmark the row, and move to the next one."""
        if self.ids:
            self._rows.toggle_mark()
            self._marks_changed()
            self.action_move(1)

    def action_mark_range(self) -> None:
        """Mark the rows from the one marked last to the cursor."""
        if self.ids:
            self._rows.mark_range()
            self._marks_changed()

    def _marks_changed(self) -> None:
        self.refresh()
        self.post_message(self.Marked(self))

    def _move_to(self, index: int) -> None:
        if not self.ids:
            return
        before = self._rows.cursor
        self._rows.move_to(index)
        self._show_cursor()
        top = self.scroll_offset.y
        self._draw_again(before - top, self._rows.cursor - top)
        self.cursor_moved()

    def _show_cursor(self) -> None:
        top, height = round(self.scroll_target_y), max(1, self.size.height - 1)
        cursor = self._rows.cursor
        if cursor < top:
            self._scroll_y(cursor)
        elif cursor >= top + height:
            self._scroll_y(cursor - height + 1)

    def on_click(self, event: events.Click) -> None:
        """Sort by the clicked title, or move the cursor to the clicked row; a double click opens the row."""
        if event.y == 0:
            if column := self._column_at(event.x + self.scroll_offset.x):
                self.post_message(self.HeaderClicked(self, column.key))
            return
        index = self.scroll_offset.y + event.y - 1
        if index < len(self.ids):
            self._move_to(index)
            if event.chain == 2:
                self.action_open()

    def _column_at(self, x: int) -> Column | None:
        left = MARGIN
        for column in self._visible_columns:
            if left <= x < left + column.width + GAP:
                return column
            left += column.width + GAP
        return None
