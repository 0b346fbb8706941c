"""What was submitted from here, as text, so that the next submission can show what has changed since.

Kept in Jupyter's data directory, one small file for each name that was submitted; nothing else depends on it.
"""

from __future__ import annotations

import difflib
import hashlib
from contextlib import suppress
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from hai_jupyter.notebooks import nbformat_files

_MOST_CHARS = 500_000
_MOST_FILES = 200
_SHOWN_LINES = 2_000


def text_of(path: Path) -> str | None:
    """A file as it is compared: of a notebook its cells, without outputs. None: too long, or no text."""
    try:
        text = _cells(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
    except (OSError, ValueError):
        return None
    return text if len(text) <= _MOST_CHARS else None


def keep(name: str, path: Path) -> None:
    """This is what was submitted under the name. A full disk is no reason to fail."""
    text, at = text_of(path), _place(name)
    if text is not None:
        with suppress(OSError):
            at.parent.mkdir(parents=True, exist_ok=True)
            nbformat_files.replace_with(text.encode(), at, like=path)
            _forget_oldest(at.parent)


def changes(name: str, path: Path) -> str | None:
    """How the file differs from what was submitted last: a unified diff. None: nothing is known."""
    now = text_of(path)
    try:
        before = _place(name).read_text("utf-8")
    except OSError:
        return None
    if now is None:
        return None
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "submitted", "now", lineterm=""
    )
    return "\n".join(line for line, _ in zip(lines, range(_SHOWN_LINES), strict=False))


def _cells(path: Path) -> str:
    cells = nbformat_files.read(path).cells
    return "\n\n".join(f"# %% {cell.cell_type}\n{cell.source}" for cell in cells) + "\n"


def _place(name: str) -> Path:
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return Path(jupyter_data_dir(), "hai_jupyter", "submitted", f"{digest}.txt")


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.txt"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in files[_MOST_FILES:]:
        old.unlink(missing_ok=True)
