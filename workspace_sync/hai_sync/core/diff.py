"""Computes and applies the differences of two trees."""

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
        """The kind of the change: create, remove or modify."""
        if self.old is None:
            return "create"
        return "remove" if self.new is None else "modify"


def diff(old: Tree, new: Tree) -> tuple[Change, ...]:
    """Return the changes that turn `old` into `new`, by path."""
    paths = [path for path, entry in old.items() if new.get(path) != entry]
    paths += [path for path in new if path not in old]
    return tuple(Change(path, old.get(path), new.get(path)) for path in sorted(paths))


def apply_changes(tree: Tree, changes: Iterable[Change]) -> Tree:
    """Return the tree after the changes."""
    result = dict(tree)
    for change in changes:
        if change.new is None:
            result.pop(change.path, None)
        else:
            result[change.path] = change.new
    return result


def order_changes(changes: Iterable[Change]) -> list[Change]:
    """Return changes in an order in which a disk can apply them: removals from the leaves up, then creations.

    A path whose kind changes is in both parts.
    """
    listed = sorted(changes, key=lambda change: change.path)
    removals = [c for c in reversed(listed) if c.new is None or must_remove_first(c)]
    return removals + [c for c in listed if c.new is not None]


def must_remove_first(change: Change) -> bool:
    """Return whether a directory replaces another kind of entry or the reverse. The old entry is then removed first."""
    old, new = change.old, change.new
    if old is None or new is None or old.kind is new.kind:
        return False
    return Kind.DIRECTORY in (old.kind, new.kind)


def changes_only_mode(change: Change) -> bool:
    """Return whether only the mode of a file changes, and its content stays the same."""
    old, new = change.old, change.new
    if old is None or new is None:
        return False
    return old.kind is new.kind is Kind.FILE and old.digest == new.digest
