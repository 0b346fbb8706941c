"""Finds names that differ only in case, of which a file system that ignores case can hold only one."""

from __future__ import annotations

from collections.abc import Sequence

from hai_sync.core.diff import Change
from hai_sync.core.entry import Tree, ancestors
from hai_sync.core.names import case_folded


def colliding_paths(changes: Sequence[Change], tree: Tree) -> dict[str, str]:
    """New paths of `changes` that equal another path except for case, each mapped to that path.

    Paths of the tree take precedence, then the first new one by name. Paths below a colliding directory are not listed.
    """
    created = sorted(c.path for c in changes if c.old is None and c.new is not None)
    removed = {c.path for c in changes if c.new is None}
    keys = {case_folded(path) for path in created}
    by_key = {key: p for p in tree if p not in removed and (key := case_folded(p)) in keys}
    found: dict[str, str] = {}
    for path in created:
        if not any(above in found for above in ancestors(path)):
            existing = by_key.setdefault(case_folded(path), path)
            if existing != path:
                found[path] = existing
    return found


def without_paths(changes: Sequence[Change], roots: dict[str, str]) -> tuple[Change, ...]:
    """The changes that lie neither at nor below some paths."""
    return tuple(c for c in changes if not any(p in roots for p in (c.path, *ancestors(c.path))))
