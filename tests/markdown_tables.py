"""Reads the tables of a Markdown page: the cells, and the heading above each table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CODE_SPAN = re.compile(r"`([^`]+)`")
_CELL_END = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `section` is the nearest heading above it, without `#` and backticks."""

    section: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(page: Path) -> list[Table]:
    """Return the tables of a page, in order, except those inside fenced code."""
    return list(_tables(page.read_text("utf-8").splitlines()))


def code_spans(cell: str) -> list[str]:
    """Return the texts between backticks, or the whole cell if there are none."""
    return _CODE_SPAN.findall(cell) or [cell]


def _tables(lines: Sequence[str]) -> Iterator[Table]:
    section, rows, fenced = "", [], False
    for line in [*lines, ""]:
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and line.startswith("|"):
            rows.append(_cells(line))
            continue
        if rows:
            header, _, *body = rows
            yield Table(section, header, tuple(body))
            rows = []
        if not fenced and line.startswith("#"):
            section = line.lstrip("#").strip().replace("`", "")


def _cells(line: str) -> tuple[str, ...]:
    cells = _CELL_END.split(line.strip())[1:-1]
    return tuple(cell.strip().replace("\\|", "|") for cell in cells)
