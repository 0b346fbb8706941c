"""The runs of a group that may be suspended, by level and rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.precedence import Guard, Rating
from hai_backend.scheduler.queue.queue import Waiting


class VictimIndex:
    """Sorted by merit within each level, with counts of nodes by level and protection."""

    def __init__(self) -> None:
        self._levels: dict[int, list[tuple[float, int, Allocation]]] = {}
        self._nodes: dict[tuple[int, Guard], int] = {}

    def add(self, allocation: Allocation) -> None:
        """Add a run that may be suspended."""
        rating = rating_of(allocation)
        runs = self._levels.setdefault(rating.level, [])
        insort(runs, (rating.merit, allocation.task.id, allocation))
        self._count(allocation, len(allocation.nodes))

    def remove(self, allocation: Allocation) -> None:
        """Remove a run. Must be called before its rating or its nodes change."""
        rating = rating_of(allocation)
        runs = self._levels[rating.level]
        del runs[bisect_left(runs, (rating.merit, allocation.task.id))]
        self._count(allocation, -len(allocation.nodes))

    def _count(self, allocation: Allocation, nodes: int) -> None:
        key = (rating_of(allocation).level, rating_of(allocation).guard)
        self._nodes[key] = self._nodes.get(key, 0) + nodes

    def might_free(
        self, waiting: Waiting, policy: Policy, enough: int, different_groups: bool
    ) -> bool:
        """A quick check: False when the runs that may be suspended have fewer than `enough` nodes.

        `different_groups`: the node group is divided among user groups, so any run of the task's level may be one.
        """
        top = Guard.ALL if waiting.level >= policy.urgent else Guard.EQUALS
        nodes = sum(
            n for (lv, guard), n in self._nodes.items() if lv < waiting.level and guard <= top
        )
        equals = policy.time_slices or different_groups
        if not equals or nodes + self._nodes.get((waiting.level, Guard.NONE), 0) < enough:
            return nodes >= enough
        for merit, _, allocation in self._levels.get(waiting.level, ()):
            if nodes >= enough or (merit >= waiting.merit and not different_groups):
                break
            nodes += len(allocation.nodes) if rating_of(allocation).guard is Guard.NONE else 0
        return nodes >= enough

    def below(
        self, waiting: Waiting, different_groups: bool
    ) -> Iterator[tuple[int, Iterator[Allocation]]]:
        """The runs of each lower level, lowest first; then runs of its level that rank below it, or all
        (`different_groups`).
        """
        for level in sorted(level for level in self._levels if level <= waiting.level):
            runs = self._levels[level]
            all_of_them = level < waiting.level or different_groups
            end = len(runs) if all_of_them else bisect_left(runs, (waiting.merit,))
            yield level, (allocation for _, _, allocation in runs[:end])


def rating_of(allocation: Allocation) -> Rating:
    """The rating of a run in the index."""
    assert allocation.rating is not None  # runs without a rating are never indexed
    return allocation.rating
