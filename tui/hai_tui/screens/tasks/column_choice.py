"""`C`: which columns a table shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets.selection_list import Selection

from hai_tui.formatting.cells import Column
from hai_tui.i18n import text
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.form.checkbox import CheckboxList
from hai_tui.widgets.plain import plain

_NEVER = ("id", "name", "status")


def chosen(columns: Iterable[Column], keys: Sequence[str]) -> list[Column]:
    """The columns of those keys, in the table's order; without keys those that are usual."""
    if not keys:
        return [column for column in columns if not column.optional]
    return [replace(column, optional=False) for column in columns if column.key in (*keys, *_NEVER)]


class ColumnDialog(Dialog[list[str] | None]):
    """Answers with the keys that are shown from now on."""

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
        """One line a column."""
        with Vertical() as box:
            box.border_title = plain(text("columns.title"))
            yield CheckboxList(
                *(
                    Selection(plain(c.title), c.key, c.key in self._visible_keys)
                    for c in self._columns
                )
            )

    def action_done(self) -> None:
        """Close with the answer, in the table's order."""
        picked = set(self.query_one(CheckboxList).selected)
        self.dismiss([column.key for column in self._columns if column.key in picked])
