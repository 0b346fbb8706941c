"""The dialog on `C`: chooses the columns of the task list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import SelectionList
from textual.widgets.option_list import OptionDoesNotExist
from textual.widgets.selection_list import Selection

from hai_tui.formatting.cells import Column
from hai_tui.i18n import text
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.plain import plain

_ALWAYS_SHOWN = ("id", "name", "status")


def select_columns(columns: Iterable[Column], keys: Sequence[str]) -> list[Column]:
    """Return the columns with these keys in the table's order; without keys, those that are not optional."""
    if not keys:
        return [column for column in columns if not column.optional]
    return [
        replace(column, optional=False)
        for column in columns
        if column.key in (*keys, *_ALWAYS_SHOWN)
    ]


class CheckboxList(SelectionList[str]):
    """A list of checkboxes that shows ticks by a character. Textual's list shows them only by colour."""

    def render_line(self, y: int) -> Strip:
        """Draw the line without a character in a box that is not ticked."""
        strip = super().render_line(y)
        try:
            option = self.get_option_at_index(self.scroll_offset.y + y)
        except OptionDoesNotExist:
            return strip
        if option.value in self.selected:
            return strip
        left, tick, *other_segments = strip
        return Strip([left, Segment(" ", tick.style), *other_segments])


class ColumnDialog(Dialog[list[str] | None]):
    """Returns the keys of the chosen columns."""

    DEFAULT_CSS = """
    ColumnDialog { align: center middle; background: $background 60%; }
    ColumnDialog > Vertical { width: 60; max-width: 95%; height: auto; max-height: 90%;
        border: round $primary; background: $surface; }
    ColumnDialog CheckboxList, ColumnDialog CheckboxList:focus { height: auto; max-height: 22;
        border: none; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,C", "done", show=False)]

    def __init__(self, columns: Sequence[Column], visible_keys: Sequence[str]) -> None:
        super().__init__()
        self._columns, self._visible_keys = columns, visible_keys

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = plain(text("columns.title"))
            boxes = (
                Selection(plain(c.title), c.key, c.key in self._visible_keys) for c in self._columns
            )
            yield CheckboxList(*boxes)

    def action_done(self) -> None:
        """Close and return the chosen columns in the table's order."""
        picked = set(self.query_one(CheckboxList).selected)
        self.dismiss([column.key for column in self._columns if column.key in picked])
