"""Reads what an earlier run of a notebook task has done, and finds the cells that need not run again.

The memory of a kernel does not survive a suspend, so a run starts with the first cell. Only the author of a cell knows
that all its results are files (a download, preprocessing): such a cell is tagged `hai:once`, and runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hai_jupyter.notebooks import nbformat_files

ONCE = "hai:once"
_KEY = "hai"
_FINISHED = "finished"


def mark_done(cell: Any) -> None:
    """Record in the output notebook that a cell has ended."""
    cell.metadata[_KEY] = {"done": True}


def take_over(notebook: Any, out: Path) -> frozenset[int]:
    """Return the indexes of `hai:once` cells that an earlier run has done; they get their earlier outputs.

    After a run that has finished, all cells run again.
    """
    before = _read_earlier(out)
    if before is None:
        return frozenset()
    record = before.metadata.get(_KEY, {})
    state, done = record.get("state", "unknown"), record.get("cells_done", "?")
    unchanged: frozenset[int] = frozenset()
    if state != _FINISHED:
        unchanged = _unchanged_cells(notebook.cells, before.cells)
    message = _start_message(len(unchanged))
    print(f"an earlier run was {state} after {done} cells; {message}", flush=True)
    for number in unchanged:
        notebook.cells[number] = before.cells[number]
    return unchanged


def _unchanged_cells(cells: Sequence[Any], before: Sequence[Any]) -> frozenset[int]:
    return frozenset(
        number
        for number, (cell, earlier) in enumerate(zip(cells, before, strict=False))
        if ONCE in cell.metadata.get("tags", [])
        and earlier.metadata.get(_KEY, {}).get("done")
        and earlier.source == cell.source
    )


def _start_message(unchanged: int) -> str:
    first = "beginning with the first one, since a kernel's memory does not survive"
    return f"{first}; {unchanged} tagged {ONCE} stay as they were" if unchanged else first


def _read_earlier(out: Path) -> Any:
    if not out.exists():
        return None
    try:
        return nbformat_files.read(out)
    except ValueError:
        return nbformat_files.new_notebook([], {})
