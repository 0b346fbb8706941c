"""Reads the tables of a markdown page: what each cell says, and under which heading."""

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
    """Every table of a page, in order; tables inside fenced code are none."""
    return list(_tables(page.read_text("utf-8").splitlines()))


def code_spans(cell: str) -> list[str]:
    """What stands between backticks; the whole cell when nothing does."""
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
