"""Ties the index of a workspace to one directory.

A copy of the directory has the same id. With the base of the original, the copy would undo what the original has
pushed since. A copy is therefore refused while the original exists. When the original was removed (the copy was
restored from a backup, or moved to another disk), the copy gets the index without the base, because its files may be
of any age. Differences then become conflicts, and nothing is removed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from hai.client.errors import NotFound, UsageError
from hai_sync.index import Index
from hai_sync.workspace_dir import WorkspaceDir, find_workspace, is_same_root, root_id, root_path


def claim_index(workspace: WorkspaceDir, index: Index) -> None:
    """Assign the index to this root. Raises UsageError if it belongs to another root that exists."""
    recorded, current = index.fact("root"), root_id(str(workspace.root))
    if recorded == current:
        return
    if recorded and not is_same_root(recorded, current):
        _require_original_removed(root_path(recorded), workspace)
        index.clear_base()
    index.set_facts(root=current)


def _require_original_removed(path: str, workspace: WorkspaceDir) -> None:
    original = _workspace_at(path)
    if original is None or original.id != workspace.id or original.root == workspace.root:
        return
    raise UsageError(
        f"{workspace.root} is a copy of the workspace {workspace.name!r} in {original.root}, "
        "and would undo what was done there; nothing was changed",
        hint=f"`rm -r {shlex.quote(str(workspace.private_dir))}`, then `haiworkspace init NAME` in it: "
        f"another name, or {workspace.name} to share that one",
    )


def _workspace_at(path: str) -> WorkspaceDir | None:
    try:
        return find_workspace(Path(path))
    except (NotFound, UsageError, OSError):
        return None
