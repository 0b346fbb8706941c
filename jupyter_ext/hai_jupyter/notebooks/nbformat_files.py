"""nbformat with types: read, make and write notebooks. A notebook is nbformat's own tree of attributes."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from hai.host.atomic_write import replacing

_nbformat: Any = nbformat  # it has no annotations


def read(path: Path) -> Any:
    """The notebook in a file. Raises OSError, or ValueError when it is none."""
    return parsed(path.read_bytes())


def parsed(data: bytes) -> Any:
    """The notebook that a file holds. Raises ValueError when it is none."""
    try:
        notebook = _nbformat.reads(data.decode(), as_version=4)
        whole = _is_whole(notebook)
    except (
        KeyError,
        AttributeError,
        TypeError,
        ValueError,
        RecursionError,
        nbformat.ValidationError,
    ) as error:
        raise ValueError(f"not a notebook: {error}") from error
    if not whole:
        raise ValueError("not a notebook: a cell or its metadata has another form")
    return notebook


def _is_whole(notebook: Any) -> bool:
    """Whether what we look at is there: nbformat reads much that is no notebook, and refuses some that work."""
    kernel = notebook.metadata.get("kernelspec", {})
    return isinstance(kernel.get("language", ""), str) and all(
        isinstance(cell.cell_type, str)
        and isinstance(cell.source, str)
        and isinstance(cell.metadata.get("tags", []), list)
        for cell in notebook.cells
    )


def text(notebook: Any) -> str:
    """The notebook as a file's text."""
    return str(_nbformat.writes(notebook))


def code_cell(source: str, **fields: Any) -> Any:
    """A code cell without outputs."""
    return _nbformat.v4.new_code_cell(source, **fields)


def stream(text: str) -> Any:
    """An output that was printed."""
    return _nbformat.v4.new_output("stream", text=text)


def made(cells: Sequence[Any], metadata: Mapping[str, Any]) -> Any:
    """A notebook of these cells."""
    return _nbformat.v4.new_notebook(cells=list(cells), metadata=dict(metadata))


def write(notebook: Any, path: Path) -> None:
    """Write a notebook as a whole: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_with(text(notebook).encode(), path)


def replace_with(data: bytes, path: Path, like: Path | None = None) -> None:
    """Put a file there, also in place of a link: as readable as the one before it, or as `like`, or as any new file."""
    mode = _mode(path) or (_mode(like) if like else None)
    with replacing(path, 0o600 if mode else 0o666) as file:
        file.write(data)
        if mode:
            os.fchmod(file.fileno(), mode)


def _mode(path: Path) -> int | None:
    """None: there is no file."""
    try:
        found = os.lstat(path).st_mode
    except OSError:
        return None
    return found & 0o777 if stat.S_ISREG(found) else None
