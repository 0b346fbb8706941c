"""Guards against removals of many files at once, which are mostly a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind, Tree

MAX_UNQUESTIONED = 10


def suspicious_removals(changes: Sequence[Change], tree: Tree) -> list[Change]:
    """The files and links that changes remove from a tree, if those are more than half of them and more than ten.

    Directories and moved files do not count.
    """
    removals = [c for c in changes if c.new is None and _is_file(c.old)]
    created = Counter(_move_key(c.new) for c in changes if c.old is None and _is_file(c.new))
    count = (Counter(_move_key(c.old) for c in removals) - created).total()
    if count <= MAX_UNQUESTIONED or count * 2 <= sum(map(_is_file, tree.values())):
        return []
    return removals


def without_removals(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes that remove nothing. A file that replaces a directory would remove the files in it."""
    return tuple(c for c in changes if c.new is not None and not _replaces_directory(c))


def _replaces_directory(change: Change) -> bool:
    return change.old is not None and not _is_file(change.old) and _is_file(change.new)


def _is_file(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is not Kind.DIRECTORY


def _move_key(entry: Entry | None) -> tuple[object, ...]:
    """Properties that a move keeps. The content of a new file is still unknown."""
    assert entry is not None
    return entry.kind, entry.size, entry.mtime_ns, entry.target
