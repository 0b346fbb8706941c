"""Counts the nodes that tasks hold now. Pure functions of the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from hai_backend.api.nodes.group_capacity import GroupCapacity
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.domain.task import Task, holders
from hai_backend.scheduler.capacity.requests import UNIT


def nodes_held(tasks: Iterable[Task]) -> frozenset[str]:
    """Return the names of the nodes that have a rank on them."""
    return frozenset(rank.node for _, _, rank in holders(tasks))


def tasks_holding(tasks: Iterable[Task], group: str, nodes: Collection[str]) -> list[int]:
    """Return the ids, sorted, of the tasks that hold a node and belong to a group or are on one of these nodes."""
    return sorted(
        {
            task.id
            for task, _, rank in holders(tasks)
            if task.spec.resource.group == group or rank.node in nodes
        }
    )


def count_held_nodes(tasks: Iterable[Task]) -> Counter[tuple[str, str, Priority]]:
    """Count the held nodes by user, group and the level at which the run started. AUTO counts all levels."""
    counts: Counter[tuple[str, str, Priority]] = Counter()
    for task, run, _ in holders(tasks):
        group = task.spec.resource.group
        counts[task.user, group, run.priority] += 1
        counts[task.user, group, Priority.AUTO] += 1
    return counts


def count_share_use(
    tasks: Iterable[Task], rows: Iterable[ShareRow], groups: Mapping[str, GroupCapacity]
) -> Counter[tuple[str, str]]:
    """Count the held nodes by user group and node group.

    Parts of nodes are added up as in the scheduler, and the sum is rounded up.
    """
    share_of = {(user, row.group): (row.name, row.group) for row in rows for user in row.users}
    units: Counter[tuple[str, str]] = Counter()
    for task, _, _ in holders(tasks):
        resource = task.spec.resource
        share = share_of.get((task.user, resource.group))
        if share is not None:
            group = groups.get(resource.group)
            units[share] += group.units(resource, 1) if group else UNIT
    return Counter({share: -(-held // UNIT) for share, held in units.items()})
