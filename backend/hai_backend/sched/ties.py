"""Groups that runs connect: a run keeps its nodes when an operator moves them to another group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set


def connected(names: Iterable[str], ties: Collection[Set[str]]) -> set[str]:
    """These groups, and those that they are tied to, directly or through others."""
    found, before = set(names), -1
    while ties and before < len(found):
        before = len(found)
        found.update(*(groups for groups in ties if not groups.isdisjoint(found)))
    return found
