"""Submits notebooks: makes the copy that is submitted, and the arguments that execute it.

The copy is named after its content. Later edits of the notebook do not change a waiting task, and submitting the same
notebook twice makes one file.
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


def copy_notebook(path: Path, cells: Sequence[str] | None, *, write: bool) -> Path:
    """Return the path of the copy of a notebook, or of some of its cells; with `write`, make the copy."""
    text = nbformat_files.to_text(_select_cells(_read(path), cells))
    return store_copy(text, path.parent, path.stem, write=write)


def store_copy(text: str, folder: Path, stem: str, *, write: bool) -> Path:
    """Return the path of the copy with this text, below a folder; with `write`, make the copy."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    copy = folder / FOLDER / f"{stem}-{digest}.ipynb"
    if write and not copy.exists():
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text, "utf-8")
    return copy


def runner_arguments(copy: Path, workspace: Path, parameters: Mapping[str, str]) -> list[str]:
    """Return the arguments of python: the runner, its input and output, and the parameters."""
    relative = copy.relative_to(workspace)
    out = relative.with_name(f"{copy.stem}.{{task}}.ipynb")
    options = [part for key, value in parameters.items() for part in ("-p", f"{key}={value}")]
    return ["-m", RUNNER, str(relative), str(out), *options]


def output_of(task: int, workspace: str, arguments: Sequence[str]) -> Path | None:
    """Return the output of a task with these arguments; None if it does not execute a notebook."""
    if list(arguments[:2]) != ["-m", RUNNER] or len(arguments) < 4:
        return None
    return Path(workspace) / arguments[3].replace("{task}", str(task))


def parameter_lines(path: Path) -> list[str]:
    """Return the lines of the cell tagged `parameters`, which the form shows."""
    for cell in _read(path).cells:
        if "parameters" in cell.metadata.get("tags", []):
            return [line for line in cell.source.splitlines() if line.strip()]
    return []


def _read(path: Path) -> Any:
    try:
        return nbformat_files.read(path)
    except ValueError as error:
        raise invalid(("path", f"{path.name} is {error}")) from error


def _select_cells(notebook: Any, cells: Sequence[str] | None) -> Any:
    """Return the notebook, or some cells, without outputs: only the parts that affect the result."""
    if cells is not None:
        kernel_keys = ("kernelspec", "language_info")
        metadata = {k: v for k, v in notebook.metadata.items() if k in kernel_keys}
        copies = [nbformat_files.code_cell(s, id=f"cell-{i}") for i, s in enumerate(cells)]
        return nbformat_files.new_notebook(copies, metadata)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook
