"""A notebook of the file browser as a script, and without its outputs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.notebooks import nbformat_files, scripts

_CHOICES = ("", "skip", "convert")
_CLASHES = ("", "overwrite", "rename")


class NotebookHandler(Handler):
    """Reads the path of a notebook that the page names. Storage may be slow: Jupyter's loop does not wait for it."""

    def notebook(self) -> tuple[Path, bytes, Any]:
        """Where it is, its bytes, and what they say."""
        path = self.body().get("path")
        if not isinstance(path, str) or not path.endswith(".ipynb"):
            raise invalid(("path", "must be a notebook of the file browser"))
        found = self.backend.contents_paths.file(path)
        try:
            data = found.read_bytes()
            return found, data, nbformat_files.parsed(data)
        except ValueError as error:
            raise invalid(("path", f"{found.name} is {error}")) from error

    def choice(self, field: str, known: tuple[str, ...]) -> Any:
        """One of a few words; left out: the empty one."""
        value = self.body().get(field, "")
        if value not in known:
            raise invalid((field, f"must be one of {', '.join(filter(None, known))}"))
        return value


class ScriptHandler(NotebookHandler):
    """A script beside the notebook."""

    @answers
    async def post(self) -> Any:
        """Its path; or what first has to be decided: `specials` that are no Python, or the file that `exists`."""
        return await asyncio.to_thread(self._written)

    def _written(self) -> Any:
        path, _, notebook = self.notebook()
        choice, clash = self.choice("specials", _CHOICES), self.choice("clash", _CLASHES)
        found = scripts.specials(notebook)
        target = path.with_suffix(".py")
        if found and not choice:
            return {"specials": [asdict(one) for one in found]}
        if target.exists() and not clash:
            return {"exists": self.backend.contents_paths.contents_path(target)}
        if clash == "rename":
            target = _free(target)
        text = scripts.script(notebook, choice or "skip")
        nbformat_files.replace_with(text.encode(), target, like=path)
        return {"path": self.backend.contents_paths.contents_path(target)}


class ClearHandler(NotebookHandler):
    """Outputs of a notebook removed, with a copy as it was."""

    @answers
    async def post(self) -> Any:
        """The copy's path, and how large the notebook was and is."""
        return await asyncio.to_thread(self._cleared)

    def _cleared(self) -> Any:
        path, before, notebook = self.notebook()
        stamp = time.strftime("%Y%m%d-%H%M%S")
        copy = _free(path.with_name(f"{path.stem}.{stamp}.bak.ipynb"))
        nbformat_files.replace_with(before, copy, like=path)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat_files.write(notebook, path)
        sizes = {"before": len(before), "after": path.stat().st_size}
        return {"copy": self.backend.contents_paths.contents_path(copy), **sizes}


def _free(path: Path) -> Path:
    """The path, or the first like it that nothing has."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found
