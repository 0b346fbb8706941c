"""What an earlier run of a notebook task has left: how far it came, and which cells need not run again.

A kernel's memory does not survive a suspend, so a run begins with the first cell. Only who wrote a cell knows that it
leaves all it does in files (a download, preprocessing): such a cell is tagged `hai:once`, and runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hai_jupyter.notebooks import nbformat_files

ONCE = "hai:once"
_KEY = "hai"
_ENDED_WELL = "finished"


def mark_done(cell: Any) -> None:
    """Note in the output notebook that a cell has run to its end."""
    cell.metadata[_KEY] = {"done": True}


def take_over(notebook: Any, out: Path) -> frozenset[int]:
    """The numbers of cells that an earlier run has done and that run once; they get the outputs that they had.

    What an earlier run that has finished did is no reason: whoever starts it again wants it again.
    """
    before = _earlier(out)
    if before is None:
        return frozenset()
    about = before.metadata.get(_KEY, {})
    state, done = about.get("state", "unknown"), about.get("cells_done", "?")
    kept = _kept(notebook.cells, before.cells) if state != _ENDED_WELL else frozenset()
    print(f"an earlier run was {state} after {done} cells; {_beginning(len(kept))}", flush=True)
    for number in kept:
        notebook.cells[number] = before.cells[number]
    return kept


def _kept(cells: Sequence[Any], before: Sequence[Any]) -> frozenset[int]:
    return frozenset(
        number
        for number, (cell, then) in enumerate(zip(cells, before, strict=False))
        if ONCE in cell.metadata.get("tags", [])
        and then.metadata.get(_KEY, {}).get("done")
        and then.source == cell.source
    )


def _beginning(kept: int) -> str:
    first = "beginning with the first one, since a kernel's memory does not survive"
    return f"{first}; {kept} tagged {ONCE} stay as they were" if kept else first


def _earlier(out: Path) -> Any:
    if not out.exists():
        return None
    try:
        return nbformat_files.read(out)
    except ValueError:
        return nbformat_files.made([], {})
