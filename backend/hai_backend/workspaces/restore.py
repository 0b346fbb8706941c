"""Restores paths from an older revision, by committing a new revision of contents that are stored already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.workspace import Entry, EntryKind, Revision, is_own
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.commit_preparation import commit_staged
from hai_backend.workspaces.push.staging import Author


def restore(files: WorkspaceFiles, number: int, paths: Sequence[str], author: Author) -> Revision:
    """Restore everything below `paths`, or the complete tree. Return the newest revision when nothing differs.

    Raise Invalid or Conflict.
    """
    apply.apply_pending(files)
    newest = files.index.newest_revision()
    selected = frozenset(path.strip("/") for path in paths)
    staging.stage(files.index, _changes(files, number, newest.number, selected))
    if selected and not _any_exists(files, number, newest.number, selected):
        names = ", ".join(sorted(selected)[:5])
        raise Invalid((Violation("paths", f"revision {number} contains none of {names}"),))
    if not staging.normalize(files.index):
        return newest
    return commit_staged(files, author)


def _changes(
    files: WorkspaceFiles, number: int, newest: int, selected: frozenset[str]
) -> Iterator[list[Entry]]:
    """Yield the removal of each path that was changed since, then the entries that existed at that revision."""
    for page in files.index.iterate_changes(number, newest):
        yield [Entry(e.path, EntryKind.NONE) for e in page if _is_selected(e.path, selected)]
    for page in files.index.iterate_tree(number):
        yield [entry for entry in page if _is_selected(entry.path, selected)]


def _is_selected(path: str, selected: frozenset[str]) -> bool:
    if is_own(path):
        return False
    if not selected or path in selected:
        return True
    parent = path.rpartition("/")[0]
    while parent:
        if parent in selected:
            return True
        parent = parent.rpartition("/")[0]
    return False


def _any_exists(files: WorkspaceFiles, number: int, newest: int, selected: frozenset[str]) -> bool:
    return any(
        files.index.get_entry(path, r) is not None for path in selected for r in (number, newest)
    )
