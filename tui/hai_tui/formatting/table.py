"""Tables of the command line: columns, views, and plain aligned text without colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

_GAP = "  "
_CUT = "..."
_BRIEF_WIDTH = 40
"""The width of a reason in a list. `hai status` prints all of it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. --columns takes its key; the header is the key in capitals."""

    key: str
    value: Callable[[Any, float], str]  # takes an item and the current time
    wide: bool = False  # shown only with -o wide, or if --columns names it
    right: bool = False
    optional: bool = False  # left out if no item has a value, unless --columns names it
    folds: bool = False  # may be folded on a narrow terminal
    drop_order: int = 0  # dropped if folding is not enough: the lowest first, 0 never
    style: Callable[[str], str] | None = None  # returns the style of a cell's text


@dataclass(frozen=True, slots=True)
class View:
    """How items of one kind are shown."""

    key: str  # the name of the list in JSON
    columns: tuple[Column, ...]
    name: Callable[[Any], str]  # the identifier that other commands take
    empty: str = ""  # key of the message for an empty list

    def chosen(self, requested: Sequence[str], wide: bool) -> tuple[Column, ...]:
        """Return the columns to show. Requested columns are never dropped. Raise UsageError for an unknown one."""
        if not requested:
            return (
                self.with_all_columns().columns
                if wide
                else tuple(c for c in self.columns if not c.wide)
            )
        by_key = {column.key: column for column in self.with_all_columns().columns}
        if unknown := [key for key in requested if key not in by_key]:
            raise _no_such_column(unknown[0], list(by_key))
        return tuple(by_key[key] for key in requested)

    def with_all_columns(self) -> View:
        """Return the same view without droppable columns."""
        return replace(
            self, columns=tuple(replace(column, drop_order=0) for column in self.columns)
        )


def cells(columns: Sequence[Column], items: Sequence[Any], now: float) -> list[list[str]]:
    """Return the text of every cell."""
    return [[printable(column.value(item, now)) for column in columns] for item in items]


def without_empty(
    columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> tuple[tuple[Column, ...], list[list[str]]]:
    """Return columns and rows without the optional columns in which all cells are `-`."""
    kept = [
        i
        for i, column in enumerate(columns)
        if not column.optional or any(row[i] != "-" for row in rows)
    ]
    return tuple(columns[i] for i in kept), [[row[i] for i in kept] for row in rows]


def plain(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    headers: bool,
    widths: Sequence[int] = (),
) -> str:
    """Return rows as aligned lines. `widths` are those of earlier lines, if these lines continue them."""
    lines = [[column.key.upper() for column in columns], *rows] if headers else list(rows)
    widths = widths or natural_widths(columns, rows, headers)
    padded = (
        _GAP.join(
            _pad(cell, size, column.right)
            for cell, size, column in zip(line, widths, columns, strict=True)
        )
        for line in lines
    )
    return "".join(line.rstrip() + "\n" for line in padded)


def natural_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], headers: bool
) -> list[int]:
    """Return the width of each column if nothing is folded."""
    heads = [len(column.key) if headers else 0 for column in columns]
    return [max([head, *(width(row[i]) for row in rows)]) for i, head in enumerate(heads)]


def printable(value: str) -> str:
    """Escape control characters, so that a text stays on its line and cannot control the terminal."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def brief(sentence: str) -> str:
    """Return the first part of a sentence, cut after a word if it is too long for a cell."""
    first = " ".join(sentence.split("\n", 1)[0].partition("; ")[0].split())
    if width(first) <= _BRIEF_WIDTH:
        return first
    cut = _first_cells(first, _BRIEF_WIDTH - len(_CUT))
    words = cut.rpartition(" ")[0]
    return (words if width(words) > _BRIEF_WIDTH // 2 else cut).rstrip(" ,:;") + _CUT


def _first_cells(value: str, cells_left: int) -> str:
    """Return the beginning of a text that fills that many cells of a terminal."""
    for end, character in enumerate(value):
        cells_left -= _cell_width(character)
        if cells_left < 0:
            return value[:end]
    return value


def width(value: str) -> int:
    """Return the number of cells that a text takes on a terminal."""
    if value.isascii():
        return len(value)
    return sum(_cell_width(character) for character in value)


def _cell_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _pad(cell: str, size: int, right: bool) -> str:
    blanks = " " * (size - width(cell))
    return blanks + cell if right else cell + blanks


def _no_such_column(key: str, keys: list[str]) -> click.UsageError:
    from difflib import get_close_matches

    matches = get_close_matches(key, keys, n=1)
    suggestion = f"did you mean {matches[0]!r}? Columns" if matches else "columns"
    return click.UsageError(f"no such column {key!r}; {suggestion} are {', '.join(keys)}")
