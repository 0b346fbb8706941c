"""A table: columns, and its plain form — aligned, never wrapped, without colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

_GAP = "  "
_CUT = "..."
_BRIEF = 40
"""Places that a reason has in a list; `hai status` says the rest."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key is what --columns takes and, in capitals, the header."""

    key: str
    value: Callable[[Any, float], str]  # from an item and the time now
    wide: bool = False  # only in -o wide, or when asked for by name
    right: bool = False
    folds: bool = False  # may be folded when a terminal is narrow
    drop_order: int = 0  # left out where even that is too wide: the lowest first, 0 never
    style: Callable[[str], str] | None = None  # a style for a cell's text, on a terminal


@dataclass(frozen=True, slots=True)
class View:
    """How items of one kind are shown."""

    key: str  # the list's name in JSON
    columns: tuple[Column, ...]
    name: Callable[[Any], str]  # what other commands take for the item
    empty: str = ""  # key of the text for an empty list

    def chosen(self, requested: Sequence[str], wide: bool) -> tuple[Column, ...]:
        """The columns to show; those that were asked for never go. Raises UsageError for an unknown one."""
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
        """The same, of which no column goes."""
        return replace(
            self, columns=tuple(replace(column, drop_order=0) for column in self.columns)
        )


def cells(columns: Sequence[Column], items: Sequence[Any], now: float) -> list[list[str]]:
    """The text of every cell."""
    return [[printable(column.value(item, now)) for column in columns] for item in items]


def plain(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    headers: bool,
    widths: Sequence[int] = (),
) -> str:
    """Rows as lines, cells under one another; below earlier lines with the widths of those."""
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
    """Places that each column takes when nothing is folded."""
    heads = [len(column.key) if headers else 0 for column in columns]
    return [max([head, *(width(row[i]) for row in rows)]) for i, head in enumerate(heads)]


def printable(value: str) -> str:
    """Text that stays on its line and steers no terminal: control characters are written out."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def brief(sentence: str) -> str:
    """A sentence for a cell of a list: its first part, cut behind a word where it is long."""
    first = " ".join(sentence.split("\n", 1)[0].partition("; ")[0].split())
    if width(first) <= _BRIEF:
        return first
    cut = _first_cells(first, _BRIEF - len(_CUT))
    words = cut.rpartition(" ")[0]
    return (words if width(words) > _BRIEF // 2 else cut).rstrip(" ,:;") + _CUT


def _first_cells(value: str, cells_left: int) -> str:
    """The beginning that takes so many places on a terminal."""
    for end, character in enumerate(value):
        cells_left -= _cell_width(character)
        if cells_left < 0:
            return value[:end]
    return value


def width(value: str) -> int:
    """Places that a text takes on a terminal."""
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


def _no_such_column(key: str, by_key: list[str]) -> click.UsageError:
    from difflib import get_close_matches

    matches = get_close_matches(key, by_key, n=1)
    suggestion = f"did you mean {matches[0]!r}? Columns" if matches else "columns"
    return click.UsageError(f"no such column {key!r}; {suggestion} are {', '.join(by_key)}")
