"""A table as a spreadsheet takes it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hai_tui.formatting.cells import Cell, Column


def write_csv(path: Path, columns: Sequence[Column], rows: Iterable[Any], now: float) -> None:
    """One line a row, as it is shown; a leading sign that a spreadsheet would compute with is made text."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.key for column in columns])
        for row in rows:
            writer.writerow([_plain(column.cell(row, now)) for column in columns])


def _plain(cell: Cell | str) -> str:
    content = cell.text if isinstance(cell, Cell) else cell
    return f"'{content}" if content[:1] in ("=", "+", "-", "@") and content != "-" else content
