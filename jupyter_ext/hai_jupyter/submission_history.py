"""Saves submitted files as text, so that the form of the next submission can show what has changed.

The texts are in the data directory of Jupyter, one file for each submitted name. Only that display uses them.
"""

from __future__ import annotations

import difflib
import hashlib
from contextlib import suppress
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from hai_jupyter.notebooks import nbformat_files

_MAX_CHARS = 500_000
_MAX_FILES = 200
_MAX_LINES = 2_000


def read_text(path: Path) -> str | None:
    """Return the text of a file; for a notebook, its cells without outputs. None if it is too long or not a text."""
    try:
        text = _cells_text(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
    except (OSError, ValueError):
        return None
    return text if len(text) <= _MAX_CHARS else None


def save(name: str, path: Path) -> None:
    """Save the file that was submitted under a name. A full disk is ignored."""
    text, target = read_text(path), _path_of(name)
    if text is not None:
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat_files.replace_file(text.encode(), target, like=path)
            _delete_oldest(target.parent)


def changes(name: str, path: Path) -> str | None:
    """Return a unified diff from the last submission to the file; None if no submission is saved."""
    now = read_text(path)
    try:
        before = _path_of(name).read_text("utf-8")
    except OSError:
        return None
    if now is None:
        return None
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "submitted", "now", lineterm=""
    )
    return "\n".join(line for line, _ in zip(lines, range(_MAX_LINES), strict=False))


def _cells_text(path: Path) -> str:
    cells = nbformat_files.read(path).cells
    return "\n\n".join(f"# %% {cell.cell_type}\n{cell.source}" for cell in cells) + "\n"


def _path_of(name: str) -> Path:
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return Path(jupyter_data_dir(), "hai_jupyter", "submitted", f"{digest}.txt")


def _delete_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.txt"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in files[_MAX_FILES:]:
        old.unlink(missing_ok=True)
