"""The difference of two trees, and its inverse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai_sync.core.entry import Entry, Kind, Tree


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one path. Without `old` it is a creation, without `new` a removal."""

    path: str
    old: Entry | None
    new: Entry | None

    @property
    def verb(self) -> str:
        """create, remove or modify."""
        if self.old is None:
            return "create"
        return "remove" if self.new is None else "modify"


def diff(old: Tree, new: Tree) -> tuple[Change, ...]:
    """The changes that turn `old` into `new`, by path."""
    paths = [path for path, entry in old.items() if new.get(path) != entry]
    paths += [path for path in new if path not in old]
    return tuple(Change(path, old.get(path), new.get(path)) for path in sorted(paths))


def apply(tree: Tree, changes: Iterable[Change]) -> Tree:
    """The tree after the changes."""
    result = dict(tree)
    for change in changes:
        if change.new is None:
            result.pop(change.path, None)
        else:
            result[change.path] = change.new
    return result


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Changes in the order in which a disk can apply them: removals from the leaves, then creations from the root.

    A path whose kind changes is in both halves.
    """
    listed = sorted(changes, key=lambda change: change.path)
    removals = [c for c in reversed(listed) if c.new is None or replaces(c)]
    return removals + [c for c in listed if c.new is not None]


def replaces(change: Change) -> bool:
    """Whether a directory replaces something else, or is replaced, so that the old entry must be removed first."""
    old, new = change.old, change.new
    if old is None or new is None or old.kind is new.kind:
        return False
    return Kind.DIRECTORY in (old.kind, new.kind)


def only_mode(change: Change) -> bool:
    """Whether the content of a file stays the same."""
    old, new = change.old, change.new
    if old is None or new is None:
        return False
    return old.kind is new.kind is Kind.FILE and old.digest == new.digest
