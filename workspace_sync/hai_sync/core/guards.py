"""Guards against changes that a user may not have meant.

These are removals of many files, names that differ only in case (of which a file system that ignores case can hold
only one), and pushes of unusual size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind, Tree, ancestors
from hai_sync.core.names import case_folded

MAX_SMALL_REMOVAL = 10


def find_suspicious_removals(changes: Sequence[Change], tree: Tree) -> list[Change]:
    """Return the removals of files and links, if they are more than ten and more than half of all in the tree.

    Directories and moved files do not count.
    """
    removals = [c for c in changes if c.new is None and _is_file(c.old)]
    created = Counter(_move_key(c.new) for c in changes if c.old is None and _is_file(c.new))
    count = (Counter(_move_key(c.old) for c in removals) - created).total()
    if count <= MAX_SMALL_REMOVAL or count * 2 <= sum(map(_is_file, tree.values())):
        return []
    return removals


def without_removals(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes that remove nothing. A file that replaces a directory would remove the files in it."""
    return tuple(c for c in changes if c.new is not None and not _replaces_directory(c))


def _replaces_directory(change: Change) -> bool:
    return change.old is not None and not _is_file(change.old) and _is_file(change.new)


def _is_file(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is not Kind.DIRECTORY


def _move_key(entry: Entry | None) -> tuple[object, ...]:
    """Return the properties that a move keeps. The content of a new file is still unknown."""
    assert entry is not None
    return entry.kind, entry.size, entry.mtime_ns, entry.target


def find_case_collisions(changes: Sequence[Change], tree: Tree) -> dict[str, str]:
    """Return the new paths that equal another path except for case, each with that other path.

    Paths of the tree take precedence, then the first new path by name. Paths below a colliding directory are omitted.
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
    """Return the changes that are neither at nor below some paths."""
    return tuple(c for c in changes if not any(p in roots for p in (c.path, *ancestors(c.path))))


MAX_BYTES, MAX_FILES = 1 << 30, 10_000
_TOP = 10


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """The size of an unusually large push, and its largest parts."""

    files: int
    size: int
    largest: Sequence[tuple[str, int]]  # files with their bytes; empty if the bytes are not many
    # directories with the number of files below; empty if there are not many files
    fullest: Sequence[tuple[str, int]]


def check_push_size(changes: Sequence[Change]) -> SizeWarning | None:
    """Return a warning if a push is unusually large, or None. A forgotten dataset is best ignored before it is sent."""
    sizes = {c.path: c.new.size for c in changes if c.new is not None and c.new.kind is Kind.FILE}
    total = sum(sizes.values())
    if total <= MAX_BYTES and len(sizes) <= MAX_FILES:
        return None
    largest = nlargest(_TOP, sizes.items(), key=lambda item: item[1]) if total > MAX_BYTES else []
    below = Counter(path.partition("/")[0] + "/" for path in sizes if "/" in path)
    fullest = below.most_common(_TOP) if len(sizes) > MAX_FILES else []
    return SizeWarning(len(sizes), total, largest, fullest)
