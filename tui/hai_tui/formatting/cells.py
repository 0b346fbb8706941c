"""Lays out a virtual table: which columns fit, how wide each is, and cell texts cut to their width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hai_tui.formatting.table import printable
from hai_tui.formatting.table import width as cell_width


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell and its tone (see hai.client.text.state_style)."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a fixed or flexible width.

    A flexible column grows into the free space. On a narrow screen, columns with the largest `drop` are dropped first.
    """

    key: str
    title: str
    width: int
    cell: Callable[[Any, float], Cell | str]
    right: bool = False
    flex: bool = False
    drop: int = 0  # 0 means never dropped
    sort: Callable[[Any], Any] | None = None  # sort key; None if the column cannot be sorted by
    optional: bool = False  # shown only if the user has chosen it
    most: int = 0  # maximum width of a flexible column; 0 means unlimited
    spare: bool = False  # shown only if all other columns have their maximum width


GAP = 2


def fitting(columns: Sequence[Column], width: int, *, all: bool = False) -> tuple[Column, ...]:
    """Return the columns that fit the width, the flexible ones widened to fill it. With `all`, no column is dropped."""
    remaining = list(columns)
    if all:
        remaining = [replace(column, width=max(column.width, column.most)) for column in remaining]
    while (
        not all and _total_width(remaining, _max_width) > width and any(c.spare for c in remaining)
    ):
        remaining.remove(next(c for c in reversed(remaining) if c.spare))
    while not all and _total_width(remaining) > width and any(c.drop for c in remaining):
        remaining.remove(max(reversed(remaining), key=lambda c: c.drop))
    return tuple(_widened(remaining, max(0, width - _total_width(remaining))))


def _widened(columns: Sequence[Column], spare: int) -> Iterator[Column]:
    """Distribute the spare cells to the flexible columns. The last one gets the most, because it
    has the longest text.
    """
    grown = {}
    for column in sorted((c for c in columns if c.flex and c.most), key=lambda c: c.spare):
        grown[column.key] = min(spare, max(0, column.most - column.width))
        spare -= grown[column.key]
    unlimited = sum(c.flex and not c.most for c in columns)
    for column in columns:
        extra = grown.get(column.key, 0)
        if column.flex and not column.most:
            extra = spare if unlimited == 1 else spare // 4
            spare, unlimited = spare - extra, unlimited - 1
        yield replace(column, width=column.width + extra) if extra else column


def _max_width(column: Column) -> int:
    """Return the width that a column needs before a spare column may be shown."""
    return column.width if column.spare else max(column.width, column.most)


def _current_width(column: Column) -> int:
    return column.width


def _total_width(
    columns: Sequence[Column], width_of: Callable[[Column], int] = _current_width
) -> int:
    return sum(map(width_of, columns)) + GAP * (len(columns) - 1)


def total(columns: Sequence[Column]) -> int:
    """Return the number of cells in a row."""
    return max(0, _total_width(columns))


def fit(text: str, width: int, right: bool = False) -> str:
    """Return the text in exactly that many cells, cut with an ellipsis. Control characters are escaped."""
    # The usual case, which needs no cache.
    if len(text) <= width and text.isascii() and text.isprintable():
        return text.rjust(width) if right else text.ljust(width)
    return _fitted(text, width, right)


@lru_cache(maxsize=2048)  # for states, and for names with wide characters
def _fitted(text: str, width: int, right: bool) -> str:
    text = printable(text)
    size = cell_width(text)
    if size > width:
        text, size = _cut(text, width - 1) + "…", width
        size = cell_width(text)
    blanks = " " * (width - size)
    return blanks + text if right else text + blanks


def _cut(text: str, width: int) -> str:
    if text.isascii():
        return text[: max(0, width)]
    size = 0
    for index, character in enumerate(text):
        size += cell_width(character)
        if size > width:
            return text[:index]
    return text
