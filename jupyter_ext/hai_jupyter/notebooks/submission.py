"""Notebooks as tasks: a copy of what is submitted, and the command that executes it.

The copy is named after its content. What is edited afterwards does not change a task that waits, and submitting the
same thing twice makes one file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hai_jupyter.errors import invalid
from hai_jupyter.notebooks import nbformat_files

FOLDER = "hai_jobs"
RUNNER = "hai_jupyter.run_notebook"


def copy_of(path: Path, cells: Sequence[str] | None, *, write: bool) -> Path:
    """Where the copy of the notebook, or of these cells of it, is; with `write` it is there afterwards."""
    text = nbformat_files.text(_chosen(_read(path), cells))
    return stored(text, path.parent, path.stem, write=write)


def stored(text: str, folder: Path, stem: str, *, write: bool) -> Path:
    """Where the copy with this text is, below a folder."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    copy = folder / FOLDER / f"{stem}-{digest}.ipynb"
    if write and not copy.exists():
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text, "utf-8")
    return copy


def arguments(copy: Path, workspace: Path, parameters: Mapping[str, str]) -> list[str]:
    """What python gets: the runner, its input and output, and the parameters."""
    relative = copy.relative_to(workspace)
    out = relative.with_name(f"{copy.stem}.{{task}}.ipynb")
    given = [part for key, value in parameters.items() for part in ("-p", f"{key}={value}")]
    return ["-m", RUNNER, str(relative), str(out), *given]


def output_of(task: int, workspace: str, given: Sequence[str]) -> Path | None:
    """The output of a task with these arguments; None when it is no notebook."""
    if list(given[:2]) != ["-m", RUNNER] or len(given) < 4:
        return None
    return Path(workspace) / given[3].replace("{task}", str(task))


def parameters_of(path: Path) -> list[str]:
    """The lines of the cell tagged `parameters`, for the form to show."""
    for cell in _read(path).cells:
        if "parameters" in cell.metadata.get("tags", []):
            return [line for line in cell.source.splitlines() if line.strip()]
    return []


def _read(path: Path) -> Any:
    try:
        return nbformat_files.read(path)
    except ValueError as error:
        raise invalid(("path", f"{path.name} is {error}")) from error


def _chosen(notebook: Any, cells: Sequence[str] | None) -> Any:
    """Without outputs; what stays is what decides about the result."""
    if cells is not None:
        kept = {k: v for k, v in notebook.metadata.items() if k in ("kernelspec", "language_info")}
        made = [nbformat_files.code_cell(source, id=f"cell-{i}") for i, source in enumerate(cells)]
        return nbformat_files.made(made, kept)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook
