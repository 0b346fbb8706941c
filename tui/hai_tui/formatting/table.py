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
    goes: int = 0  # left out where even that is too wide: the lowest first, 0 never
    style: Callable[[str], str] | None = None  # a style for a cell's text, on a terminal


@dataclass(frozen=True, slots=True)
class View:
    """How items of one kind are shown."""

    key: str  # the list's name in JSON
    columns: tuple[Column, ...]
    name: Callable[[Any], str]  # what other commands take for the item
    empty: str = ""  # key of the text for an empty list

    def chosen(self, wanted: Sequence[str], wide: bool) -> tuple[Column, ...]:
        """The columns to show; those that were asked for never go. Raises UsageError for an unknown one."""
        if not wanted:
            return self.whole().columns if wide else tuple(c for c in self.columns if not c.wide)
        known = {column.key: column for column in self.whole().columns}
        if unknown := [key for key in wanted if key not in known]:
            raise _no_such_column(unknown[0], list(known))
        return tuple(known[key] for key in wanted)

    def whole(self) -> View:
        """The same, of which no column goes."""
        return replace(self, columns=tuple(replace(column, goes=0) for column in self.columns))


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
    cut = _first_places(first, _BRIEF - len(_CUT))
    words = cut.rpartition(" ")[0]
    return (words if width(words) > _BRIEF // 2 else cut).rstrip(" ,:;") + _CUT


def _first_places(value: str, places: int) -> str:
    """The beginning that takes so many places on a terminal."""
    for end, character in enumerate(value):
        places -= _places(character)
        if places < 0:
            return value[:end]
    return value


def width(value: str) -> int:
    """Places that a text takes on a terminal."""
    if value.isascii():
        return len(value)
    return sum(_places(character) for character in value)


def _places(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _pad(cell: str, size: int, right: bool) -> str:
    blanks = " " * (size - width(cell))
    return blanks + cell if right else cell + blanks


def _no_such_column(key: str, known: list[str]) -> click.UsageError:
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    meant = f"did you mean {near[0]!r}? Columns" if near else "columns"
    return click.UsageError(f"no such column {key!r}; {meant} are {', '.join(known)}")
