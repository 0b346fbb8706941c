"""A memory is used by one directory only: with the base of another, what that one has pushed since would be undone
as if it had been edited here.

While the other one exists, a copy is refused. When it is gone (restored from a backup, moved to another disk), this one
takes its memory over without the base, for its files may be of any age: what differs is a conflict, nothing is removed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from hai.client.errors import NotFound, UsageError
from hai_sync.index import Index
from hai_sync.workspace_dir import WorkspaceDir, find, is_same, mark, path_of


def claim(place: WorkspaceDir, index: Index) -> None:
    """The memory is this root's from now on. Raises UsageError when it is that of another one."""
    before, now = index.fact("root"), mark(str(place.root))
    if before == now:
        return
    if before and not is_same(before, now):
        _require_gone(path_of(before), place)
        index.forget_base()
    index.set_facts(root=now)


def _require_gone(path: str, place: WorkspaceDir) -> None:
    original = _workspace_at(path)
    if original is None or original.id != place.id or original.root == place.root:
        return
    raise UsageError(
        f"{place.root} is a copy of the workspace {place.name!r} in {original.root}, "
        "and would undo what was done there; nothing was changed",
        hint=f"`rm -r {shlex.quote(str(place.own))}`, then `haiworkspace init NAME` in it: "
        f"another name, or {place.name} to share that one",
    )


def _workspace_at(path: str) -> WorkspaceDir | None:
    try:
        return find(Path(path))
    except (NotFound, UsageError, OSError):
        return None
