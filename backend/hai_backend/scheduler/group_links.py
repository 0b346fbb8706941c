"""Groups that runs connect: a run keeps its nodes when an operator moves them to another group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set

from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.snapshot import SchedTask


class GroupLinks:
    """The groups of each run that has nodes of several, or of another one than its own."""

    def __init__(self) -> None:
        self._of: dict[int, set[str]] = {}

    def tie(self, task: SchedTask, nodes: Mapping[str, Node]) -> set[str]:
        """Note and answer the groups that a run connects; none when all its nodes are of its own."""
        groups = {nodes[name].group for name in task.placed if name in nodes}
        if groups <= {task.group}:
            return set()
        tied = self._of[task.id] = groups | {task.group}
        return tied

    def untie(self, task: SchedTask) -> set[str]:
        """Forget a run; the groups that it concerned, its own among them."""
        return self._of.pop(task.id, {task.group})

    def renew(self, tasks: Iterable[SchedTask], nodes: Mapping[str, Node]) -> None:
        """Look at all runs anew: nodes may have moved."""
        self._of = {}
        for task in tasks:
            if task.placed:
                self.tie(task, nodes)

    def connected(self, names: Iterable[str]) -> set[str]:
        """These groups, and those that they are tied to, directly or through others."""
        return connected(names, self._of.values())


def connected(names: Iterable[str], ties: Collection[Set[str]]) -> set[str]:
    """The same for any ties."""
    found, before = set(names), -1
    while ties and before < len(found):
        before = len(found)
        found.update(*(groups for groups in ties if not groups.isdisjoint(found)))
    return found
