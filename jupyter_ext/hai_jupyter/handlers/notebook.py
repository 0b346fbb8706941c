"""Converts a notebook to a Python script, and clears the outputs of a notebook."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.notebooks import nbformat_files, scripts

_MAGIC_ACTIONS = ("", "skip", "convert")
_EXISTING_FILE_ACTIONS = ("", "overwrite", "rename")


class NotebookHandler(Handler):
    """Reads the notebook whose path is in the request. Storage may be slow, so subclasses read it in a thread."""

    def notebook(self) -> tuple[Path, bytes, Any]:
        """Return the path of the notebook, its bytes, and the parsed notebook. Raises an error for the page."""
        path = self.body().get("path")
        if not isinstance(path, str) or not path.endswith(".ipynb"):
            raise invalid(("path", "must be the path of an .ipynb file"))
        file = self.shared.contents_paths.file(path)
        try:
            data = file.read_bytes()
            return file, data, nbformat_files.parse(data)
        except ValueError as error:
            raise invalid(("path", f"{file.name} is {error}")) from error

    def choice(self, field: str, known: tuple[str, ...]) -> Any:
        """Return the value of `field`, which must be one of `known`; empty if the request does not have it."""
        value = self.body().get(field, "")
        if value not in known:
            raise invalid((field, f"must be one of {', '.join(filter(None, known))}"))
        return value


class ScriptHandler(NotebookHandler):
    """Writes a Python script next to the notebook."""

    @answers
    async def post(self) -> Any:
        """Return the path of the script, or what the user must decide first.

        That is `specials` (lines that are not Python), or the existing file in `exists`.
        """
        return await asyncio.to_thread(self._write_script)

    def _write_script(self) -> Any:
        path, _, notebook = self.notebook()
        choice = self.choice("specials", _MAGIC_ACTIONS)
        clash = self.choice("clash", _EXISTING_FILE_ACTIONS)
        specials = scripts.find_specials(notebook)
        target = path.with_suffix(".py")
        if specials and not choice:
            return {"specials": [asdict(special) for special in specials]}
        if target.exists() and not clash:
            return {"exists": self.shared.contents_paths.contents_path(target)}
        if clash == "rename":
            target = _unused_path(target)
        text = scripts.to_script(notebook, choice or "skip")
        nbformat_files.replace_file(text.encode(), target, like=path)
        return {"path": self.shared.contents_paths.contents_path(target)}


class ClearHandler(NotebookHandler):
    """Removes all outputs of a notebook and saves a copy first."""

    @answers
    async def post(self) -> Any:
        """Return the path of the copy, and the size of the notebook before and after, in bytes."""
        return await asyncio.to_thread(self._clear_outputs)

    def _clear_outputs(self) -> Any:
        path, before, notebook = self.notebook()
        stamp = time.strftime("%Y%m%d-%H%M%S")
        copy = _unused_path(path.with_name(f"{path.stem}.{stamp}.bak.ipynb"))
        nbformat_files.replace_file(before, copy, like=path)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat_files.write(notebook, path)
        sizes = {"before": len(before), "after": path.stat().st_size}
        return {"copy": self.shared.contents_paths.contents_path(copy), **sizes}


def _unused_path(path: Path) -> Path:
    """Return the path itself, or path-2, path-3 and so on: the first that does not exist."""
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate
