"""Reads, makes and writes notebooks, with types for nbformat. A notebook is nbformat's own tree of attributes."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from hai.host.atomic_write import replacing

_nbformat: Any = nbformat  # nbformat has no annotations


def read(path: Path) -> Any:
    """Read the notebook of a file. Raises OSError, or ValueError if the file is not a notebook."""
    return parse(path.read_bytes())


def parse(data: bytes) -> Any:
    """Parse a notebook. Raises ValueError if the data is not a notebook."""
    try:
        notebook = _nbformat.reads(data.decode(), as_version=4)
        is_complete = _is_complete(notebook)
    except (
        KeyError,
        AttributeError,
        TypeError,
        ValueError,
        RecursionError,
        nbformat.ValidationError,
    ) as error:
        raise ValueError(f"not a notebook: {error}") from error
    if not is_complete:
        raise ValueError("not a notebook: a cell or its metadata has another form")
    return notebook


def _is_complete(notebook: Any) -> bool:
    """Return whether all parts that this package reads exist. nbformat accepts other files, and rejects usable ones."""
    kernel = notebook.metadata.get("kernelspec", {})
    return isinstance(kernel.get("language", ""), str) and all(
        isinstance(cell.cell_type, str)
        and isinstance(cell.source, str)
        and isinstance(cell.metadata.get("tags", []), list)
        for cell in notebook.cells
    )


def to_text(notebook: Any) -> str:
    """Return the text of the file of a notebook."""
    return str(_nbformat.writes(notebook))


def code_cell(source: str, **fields: Any) -> Any:
    """Return a code cell without outputs."""
    return _nbformat.v4.new_code_cell(source, **fields)


def printed_output(text: str) -> Any:
    """Return the output of a cell that printed a text."""
    return _nbformat.v4.new_output("stream", text=text)


def new_notebook(cells: Sequence[Any], metadata: Mapping[str, Any]) -> Any:
    """Return a notebook with these cells."""
    return _nbformat.v4.new_notebook(cells=list(cells), metadata=dict(metadata))


def write(notebook: Any, path: Path) -> None:
    """Write a notebook atomically: a reader never sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(to_text(notebook).encode(), path)


def replace_file(data: bytes, path: Path, like: Path | None = None) -> None:
    """Write a file atomically; a link is replaced. It gets the permissions of the old file, of `like`, or of a new
    file.
    """
    mode = _permissions(path) or (_permissions(like) if like else None)
    with replacing(path, 0o600 if mode else 0o666) as file:
        file.write(data)
        if mode:
            os.fchmod(file.fileno(), mode)


def _permissions(path: Path) -> int | None:
    """Return the permissions of a regular file, or None."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    return mode & 0o777 if stat.S_ISREG(mode) else None
