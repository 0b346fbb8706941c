"""Lists a directory of a tree with the size of everything below each path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hai_sync.core.entry import Entry, Kind, Tree, ancestors, below, parent


@dataclass(frozen=True, slots=True)
class Row:
    """A path with all that lies below it: how many files, and their bytes."""

    path: str
    entry: Entry
    files: int
    size: int


def list_rows(tree: Tree, top: str, *, recursive: bool = False) -> Iterator[Row]:
    """Rows of the members of `top` ("": the root), by name; of a file, its own row. `recursive`: all below, too."""
    inside = {path: entry for path, entry in tree.items() if not top or below(path, top)}
    files, sizes = Counter[str](), Counter[str]()
    for path, entry in inside.items():
        if entry.kind is Kind.FILE:
            for each in (path, *ancestors(path)):
                files[each] += 1
                sizes[each] += entry.size
    for path in sorted(inside, key=lambda path: path.split("/")):
        if _is_listed(tree, path, top) or (recursive and path != top):
            yield Row(path, inside[path], files[path], sizes[path])


def _is_listed(tree: Tree, path: str, top: str) -> bool:
    if path == top:
        return tree[top].kind is not Kind.DIRECTORY
    return parent(path) == top
