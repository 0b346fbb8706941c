"""Guards against removals of many files at once, which are mostly a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind, Tree, ancestors
from hai_sync.core.names import case_folded

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


MAX_BYTES, MAX_FILES = 1 << 30, 10_000
_TOP = 10


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """The size of an unusually large push, and its largest parts."""

    files: int
    size: int
    largest: Sequence[tuple[str, int]]  # files, with bytes; none unless it is many bytes
    fullest: Sequence[
        tuple[str, int]
    ]  # directories, with how many files are below; none unless there are many


def size_warning_of(changes: Sequence[Change]) -> SizeWarning | None:
    """None: the push is not unusually large."""
    sizes = {c.path: c.new.size for c in changes if c.new is not None and c.new.kind is Kind.FILE}
    total = sum(sizes.values())
    if total <= MAX_BYTES and len(sizes) <= MAX_FILES:
        return None
    largest = nlargest(_TOP, sizes.items(), key=lambda item: item[1]) if total > MAX_BYTES else []
    below = Counter(path.partition("/")[0] + "/" for path in sizes if "/" in path)
    fullest = below.most_common(_TOP) if len(sizes) > MAX_FILES else []
    return SizeWarning(len(sizes), total, largest, fullest)
