"""Directories of tasks as people ask of them: which there are, and that one shall go. checkouts.py makes them."""

from __future__ import annotations

import os
from pathlib import Path

from hai_backend.domain.workspace import TaskTree
from hai_backend.workspaces.checkouts import no_directory
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.push.removal import remove_tree

_GONE = ".gone"


def trees(files: Files, *, before: int, limit: int) -> list[TaskTree]:
    """Of tasks with smaller numbers, the newest first."""
    query = """SELECT task, revision, size_bytes, made_ns FROM checkouts
        WHERE task < ? ORDER BY task DESC LIMIT ?"""
    rows = files.index.rows(query, (before, limit))
    return [TaskTree(task, revision, size, made / 1e9) for task, revision, size, made in rows]


def hide(files: Files, task: int) -> Path:
    """It is gone for everybody; who calls this removes what it answers. Raises NotFound."""
    path, gone = files.tasks / str(task), files.tasks / f".{task}{_GONE}"
    remove_tree(gone)
    try:
        os.rename(path, gone)
    except FileNotFoundError:
        if not files.index.rows("SELECT 1 FROM checkouts WHERE task = ?", (task,)):
            raise no_directory(task) from None  # else a server died before it had forgotten it
    with files.index.transaction(durable=True) as db:
        db.execute("DELETE FROM checkouts WHERE task = ?", (task,))
    return gone


def drop_hidden(files: Files) -> None:
    """What a server left that died while it removed them."""
    for name in os.listdir(files.tasks):
        if name.startswith(".") and name.endswith(_GONE):
            remove_tree(files.tasks / name)
