"""Prints tables on a terminal. Only this module loads rich."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hai_tui.cli.settings import Settings
from hai_tui.formatting.table import Column, natural_widths

_MIN_WIDTH = 12
"""No column is folded to fewer cells than this."""

_READABLE_WIDTH = 20
"""A column that would be folded to fewer cells is hard to read, so other columns are dropped first."""


def console(settings: Settings) -> Console:
    """Return a console that prints `name[owner]` as it is, because it reads no markup."""
    return Console(
        no_color=not settings.colored, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


def print_table(
    settings: Settings, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table folded to the width of the terminal.

    If that is too narrow, print whole lines that run over its edge.
    """
    terminal = console(settings)
    columns, rows = drop_columns(columns, rows, settings.headers, terminal.width)
    table, gaps = rich_table(columns, rows, settings.headers), 2 * (len(columns) - 1)
    if terminal.width < sum(column.min_width or 0 for column in table.columns) + gaps:
        terminal.width = sum(natural_widths(columns, rows, settings.headers)) + gaps
    with terminal.capture() as printed:
        terminal.print(table)
    click.echo("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()), nl=False)


def drop_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], headers: bool, available_width: int
) -> tuple[list[Column], list[list[str]]]:
    """Drop columns in their order until the others fit in that width with readable cells."""
    natural = natural_widths(columns, rows, headers)
    needed = [
        min(n, _READABLE_WIDTH) if c.folds else n for c, n in zip(columns, natural, strict=True)
    ]
    remaining = list(range(len(columns)))
    for i in sorted(
        (i for i in remaining if columns[i].drop_order), key=lambda i: columns[i].drop_order
    ):
        if sum(needed[j] for j in remaining) + 2 * (len(remaining) - 1) <= available_width:
            break
        remaining.remove(i)
    return [columns[i] for i in remaining], [[row[i] for i in remaining] for row in rows]


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], headers: bool) -> Table:
    """Return a table with coloured states; its long cells are folded."""
    table = Table(box=None, show_header=headers, header_style="bold", pad_edge=False)
    for column, width in zip(columns, natural_widths(columns, rows, headers), strict=True):
        table.add_column(
            column.key.upper(),
            min_width=min(width, _MIN_WIDTH) if column.folds else width,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.folds,
        )
    for row in rows:
        table.add_row(*(_cell(c, value) for c, value in zip(columns, row, strict=True)))
    return table


def _cell(column: Column, value: str) -> Text:
    return Text(value, style=column.style(value) if column.style else "")
