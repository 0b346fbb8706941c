"""Node groups that are connected by runs: a run keeps a node that an operator moves to another group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set

from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.snapshot import SchedTask


class GroupLinks:
    """The groups of each run that has nodes in other groups than its own."""

    def __init__(self) -> None:
        self._groups: dict[int, set[str]] = {}

    def link(self, task: SchedTask, nodes: Mapping[str, Node]) -> set[str]:
        """Store and return the groups that a run connects; none if all its nodes are in its own group."""
        groups = {nodes[name].group for name in task.placed if name in nodes}
        if groups <= {task.group}:
            return set()
        linked = self._groups[task.id] = groups | {task.group}
        return linked

    def unlink(self, task: SchedTask) -> set[str]:
        """Remove a run. Return the groups that it connected, its own included."""
        return self._groups.pop(task.id, {task.group})

    def rebuild(self, tasks: Iterable[SchedTask], nodes: Mapping[str, Node]) -> None:
        """Link all runs again, because nodes may have moved."""
        self._groups = {}
        for task in tasks:
            if task.placed:
                self.link(task, nodes)

    def connected(self, names: Iterable[str]) -> set[str]:
        """Return these groups, and the groups that are connected to them."""
        return find_connected(names, self._groups.values())


def find_connected(names: Iterable[str], links: Collection[Set[str]]) -> set[str]:
    """Return these groups, and the groups that are linked to them, directly or through others."""
    found, before = set(names), -1
    while links and before < len(found):
        before = len(found)
        found.update(*(groups for groups in links if not groups.isdisjoint(found)))
    return found
