"""Who holds which nodes now, from the tasks themselves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task, holders


def nodes_held(tasks: Iterable[Task]) -> frozenset[str]:
    """Names of the nodes that somebody is on."""
    return frozenset(rank.node for _, _, rank in holders(tasks))


def tasks_holding(tasks: Iterable[Task], group: str, nodes: Collection[str]) -> list[int]:
    """Tasks of a group, or on these nodes of it, that hold a node; by id."""
    return sorted(
        {
            task.id
            for task, _, rank in holders(tasks)
            if task.spec.resource.group == group or rank.node in nodes
        }
    )


def held_by(tasks: Iterable[Task]) -> Counter[tuple[str, str, Priority]]:
    """Nodes by user, group and level at which the run was started; AUTO counts all levels."""
    counts: Counter[tuple[str, str, Priority]] = Counter()
    for task, run, _ in holders(tasks):
        group = task.spec.resource.group
        counts[task.user, group, run.priority] += 1
        counts[task.user, group, Priority.AUTO] += 1
    return counts
