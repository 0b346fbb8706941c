"""Tables for a terminal. The only module that loads rich, and only when stdout is a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hai_tui.cli.settings import Settings
from hai_tui.formatting.table import Column, natural_widths

_LEAST = 12
"""Narrower than this no column is folded: a name of one letter a line tells nobody anything."""

_READABLE = 20
"""Folded to less than this a cell is read with effort: other columns go first."""


def console(settings: Settings) -> Console:
    """A console that takes no markup, so that `name[owner]` is shown as it is."""
    return Console(
        no_color=not settings.colored, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


def print_table(
    settings: Settings, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    """Folded to the terminal; where even that finds no room, whole lines, which run over its edge."""
    out = console(settings)
    columns, rows = fitted(columns, rows, settings.headers, out.width)
    table, gaps = rich_table(columns, rows, settings.headers), 2 * (len(columns) - 1)
    if out.width < sum(column.min_width or 0 for column in table.columns) + gaps:
        out.width = sum(natural_widths(columns, rows, settings.headers)) + gaps
    with out.capture() as printed:
        out.print(table)
    click.echo("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()), nl=False)


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], headers: bool, available_width: int
) -> tuple[list[Column], list[list[str]]]:
    """What a terminal so wide has room for with cells that are easily read: the columns that may go, go in turn."""
    sizes = natural_widths(columns, rows, headers)
    needed = [min(n, _READABLE) if c.folds else n for c, n in zip(columns, sizes, strict=True)]
    left = list(range(len(columns)))
    for i in sorted(
        (i for i in left if columns[i].drop_order), key=lambda i: columns[i].drop_order
    ):
        if sum(needed[j] for j in left) + 2 * (len(left) - 1) <= available_width:
            break
        left.remove(i)
    return [columns[i] for i in left], [[row[i] for i in left] for row in rows]


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], headers: bool) -> Table:
    """The rows with coloured states; long cells are folded at the terminal's width."""
    table = Table(box=None, show_header=headers, header_style="bold", pad_edge=False)
    for column, natural in zip(columns, natural_widths(columns, rows, headers), strict=True):
        table.add_column(
            column.key.upper(),
            min_width=min(natural, _LEAST) if column.folds else natural,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.folds,
        )
    for row in rows:
        table.add_row(*(_cell(c, value) for c, value in zip(columns, row, strict=True)))
    return table


def _cell(column: Column, value: str) -> Text:
    return Text(value, style=column.style(value) if column.style else "")
