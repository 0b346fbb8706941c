"""The runs of a group that may be suspended, by level and merit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.precedence import Precedence, Protection
from hai_backend.scheduler.queue.queue import QueueEntry


class VictimIndex:
    """Keeps runs sorted by merit within each level, and counts their nodes by level and protection."""

    def __init__(self) -> None:
        self._levels: dict[int, list[tuple[float, int, Allocation]]] = {}
        self._nodes: dict[tuple[int, Protection], int] = {}

    def add(self, allocation: Allocation) -> None:
        """Add a run that may be suspended."""
        precedence = precedence_of(allocation)
        runs = self._levels.setdefault(precedence.level, [])
        insort(runs, (precedence.merit, allocation.task.id, allocation))
        self._count(allocation, len(allocation.nodes))

    def remove(self, allocation: Allocation) -> None:
        """Remove a run. Must be called before its precedence or its nodes change."""
        precedence = precedence_of(allocation)
        runs = self._levels[precedence.level]
        del runs[bisect_left(runs, (precedence.merit, allocation.task.id))]
        self._count(allocation, -len(allocation.nodes))

    def _count(self, allocation: Allocation, nodes: int) -> None:
        """Add the nodes of a run, or subtract them, in the counts by level and protection."""
        key = (precedence_of(allocation).level, precedence_of(allocation).protection)
        self._nodes[key] = self._nodes.get(key, 0) + nodes

    def might_free(
        self, entry: QueueEntry, policy: Policy, node_count: int, different_groups: bool
    ) -> bool:
        """Check quickly whether the runs that may be suspended for a task have at least `node_count` nodes.

        `different_groups`: the node group is divided among user groups, so any run of the task's level may be
        suspended.
        """
        top = Protection.ALL if entry.level >= policy.urgent else Protection.EQUALS
        nodes = sum(
            n
            for (lv, protection), n in self._nodes.items()
            if lv < entry.level and protection <= top
        )
        equals = policy.time_slices or different_groups
        if not equals or nodes + self._nodes.get((entry.level, Protection.NONE), 0) < node_count:
            return nodes >= node_count
        for merit, _, allocation in self._levels.get(entry.level, ()):
            if nodes >= node_count or (merit >= entry.merit and not different_groups):
                break
            nodes += (
                len(allocation.nodes)
                if precedence_of(allocation).protection is Protection.NONE
                else 0
            )
        return nodes >= node_count

    def runs_by_level(
        self, entry: QueueEntry, different_groups: bool
    ) -> Iterator[tuple[int, Iterator[Allocation]]]:
        """Yield the runs of each lower level, the lowest first, then those of the task's level with less merit.

        With `different_groups`, all runs of the task's level are yielded.
        """
        for level in sorted(level for level in self._levels if level <= entry.level):
            runs = self._levels[level]
            all_of_them = level < entry.level or different_groups
            end = len(runs) if all_of_them else bisect_left(runs, (entry.merit,))
            yield level, (allocation for _, _, allocation in runs[:end])


def precedence_of(allocation: Allocation) -> Precedence:
    """Return the precedence of a run in the index."""
    assert allocation.precedence is not None  # runs without a precedence are never indexed
    return allocation.precedence
