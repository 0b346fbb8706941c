"""Columns of a virtual table: which fit, how wide each is, and a cell's text cut to its width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hai_tui.formatting.table import printable
from hai_tui.formatting.table import width as cell_width


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text and its tone (see hai.client.text.state_style)."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of fixed width. With `flex` it takes what is left; a larger `drop` leaves a narrow screen first.

    `most`: how wide a flexible one grows (0: as there is room). `spare`: it comes only where all others have that.
    """

    key: str
    title: str
    width: int
    cell: Callable[[Any, float], Cell | str]
    right: bool = False
    flex: bool = False
    drop: int = 0  # 0: never left out
    sort: Callable[[Any], Any] | None = None  # None: it can not be sorted by
    optional: bool = False  # only shown when it is chosen
    most: int = 0
    spare: bool = False


GAP = 2


def fitting(columns: Sequence[Column], width: int, *, all: bool = False) -> tuple[Column, ...]:
    """The columns for that width, the flexible one widened to fill it; with `all` none is left out."""
    columns_left = list(columns)
    if all:
        columns_left = [
            replace(column, width=max(column.width, column.most)) for column in columns_left
        ]
    while not all and _total(columns_left, _full) > width and any(c.spare for c in columns_left):
        columns_left.remove(next(c for c in reversed(columns_left) if c.spare))
    while not all and _total(columns_left) > width and any(c.drop for c in columns_left):
        columns_left.remove(max(reversed(columns_left), key=lambda c: c.drop))
    return tuple(_widened(columns_left, max(0, width - _total(columns_left))))


def _widened(columns: Sequence[Column], spare: int) -> Iterator[Column]:
    """The spare cells go to the flexible columns, more to the last (it tells the longest story)."""
    grown = {}
    for column in sorted((c for c in columns if c.flex and c.most), key=lambda c: c.spare):
        grown[column.key] = min(spare, max(0, column.most - column.width))
        spare -= grown[column.key]
    left = sum(c.flex and not c.most for c in columns)
    for column in columns:
        extra = grown.get(column.key, 0)
        if column.flex and not column.most:
            extra = spare if left == 1 else spare // 4
            spare, left = spare - extra, left - 1
        yield replace(column, width=column.width + extra) if extra else column


def _full(column: Column) -> int:
    """What it wants before a spare column comes; that one is content with less."""
    return column.width if column.spare else max(column.width, column.most)


def _as_it_is(column: Column) -> int:
    return column.width


def _total(columns: Sequence[Column], of: Callable[[Column], int] = _as_it_is) -> int:
    return sum(map(of, columns)) + GAP * (len(columns) - 1)


def total(columns: Sequence[Column]) -> int:
    """Cells that a row takes."""
    return max(0, _total(columns))


def fit(text: str, width: int, right: bool = False) -> str:
    """The text in exactly so many cells, cut with an ellipsis; it can steer no terminal."""
    if len(text) <= width and text.isascii() and text.isprintable():  # nearly always
        return text.rjust(width) if right else text.ljust(width)
    return _fitted(text, width, right)


@lru_cache(maxsize=2048)  # states, and names that are not English
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
