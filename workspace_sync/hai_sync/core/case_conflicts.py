"""Names that differ only in case, on a side whose file system ignores case and can hold only one of them."""

from __future__ import annotations

from collections.abc import Sequence

from hai_sync.core.diff import Change
from hai_sync.core.entry import Tree, ancestors
from hai_sync.core.names import folded


def newcomers(changes: Sequence[Change], tree: Tree) -> dict[str, str]:
    """The new paths that would fall on another path after the changes to a tree, each with that path.

    What the tree holds stays, and of several newcomers the first by name. What lies in a newcomer is not listed.
    """
    created = sorted(c.path for c in changes if c.old is None and c.new is not None)
    removed = {c.path for c in changes if c.new is None}
    concerned = {folded(path) for path in created}
    holders = {key: p for p in tree if p not in removed and (key := folded(p)) in concerned}
    found: dict[str, str] = {}
    for path in created:
        if not any(above in found for above in ancestors(path)):
            holder = holders.setdefault(folded(path), path)
            if holder != path:
                found[path] = holder
    return found


def without(changes: Sequence[Change], tops: dict[str, str]) -> tuple[Change, ...]:
    """The changes that lie neither at nor below some paths."""
    return tuple(c for c in changes if not any(p in tops for p in (c.path, *ancestors(c.path))))
