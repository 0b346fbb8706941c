"""Tables for a terminal. The only module that loads rich, and only when stdout is a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hai_tui.cli.settings import Settings
from hai_tui.cli.table import Column


def console(settings: Settings) -> Console:
    """A console that takes no markup, so that `name[owner]` is shown as it is."""
    return Console(
        no_color=not settings.colored, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], headers: bool) -> Table:
    """The rows with coloured states; long cells are folded at the terminal's width."""
    table = Table(box=None, show_header=headers, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(
            column.key.upper(),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.folds,
        )
    for row in rows:
        table.add_row(*(_cell(c, value) for c, value in zip(columns, row, strict=True)))
    return table


def _cell(column: Column, value: str) -> Text:
    return Text(value, style=column.style(value) if column.style else "")
