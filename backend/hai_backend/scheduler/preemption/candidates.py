"""What the suspension of a run costs, and the runs that may be suspended in the order of that cost.

The time of a pass is fixed, so each cost is computed once per pass. A row holds runs with equal numbers of nodes, the
cheapest first: within a row the cheaper run is always the better victim, so a search reads only the start of each row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from math import frexp, inf, isfinite
from typing import NamedTuple

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import VictimIndex, precedence_of
from hai_backend.scheduler.queue.precedence import restart_seconds
from hai_backend.scheduler.queue.queue import QueueEntry


class Price(NamedTuple):
    """What the suspension of a run costs in node-seconds, and its merit, which decides between equal costs."""

    lost: float
    merit: float
    task: int
    allocation: Allocation


Rows = dict[int, list[Price]]
"""Rows by number of nodes."""


class VictimCandidates:
    """The runs of a VictimIndex at one time. Runs may be removed afterwards, but not added."""

    def __init__(self, victim_index: VictimIndex, policy: Policy, now: float) -> None:
        self.now = now
        self._victim_index = victim_index
        self._policy = policy
        # by level and whether it is the task's own; the rows hold runs with less than that merit
        self._levels: dict[tuple[int, bool], tuple[float, Rows]] = {}

    def rows_by_level(
        self, entry: QueueEntry, different_groups: bool, on_named: Collection[Allocation] = ()
    ) -> Iterator[list[Iterator[Price]]]:
        """Yield the rows of each level of `VictimIndex.runs_by_level`.

        `on_named`: the runs on the nodes that the task names.
        """
        for level, runs in self._victim_index.runs_by_level(entry, different_groups):
            equals = level == entry.level
            max_merit = entry.merit if equals and not different_groups else inf
            if entry.request.node_names:
                rows = self._sort_into_rows((run for run in runs if run in on_named), equals)
            else:
                rows = self._rows_of_level(level, equals, max_merit, runs)
            yield [(price for price in row if price.merit < max_merit) for row in rows.values()]

    def _rows_of_level(
        self, level: int, equals: bool, max_merit: float, runs: Iterable[Allocation]
    ) -> Rows:
        cached = self._levels.get((level, equals))
        if cached is None or cached[0] < max_merit:
            cached = self._levels[level, equals] = (max_merit, self._sort_into_rows(runs, equals))
        return cached[1]

    def _sort_into_rows(self, runs: Iterable[Allocation], equals: bool) -> Rows:
        rows: Rows = {}
        for allocation in runs:
            if equals and precedence_of(allocation).protection_ends[1] > self.now:
                continue  # no task of its level may suspend it in this pass
            rows.setdefault(len(allocation.nodes), []).append(self._price(allocation, equals))
        for row in rows.values():
            row.sort()
        return rows

    def _price(self, allocation: Allocation, equals: bool) -> Price:
        task = allocation.task
        if equals:
            merit = precedence_of(allocation).merit
            return Price(loss_of_equal(task, self.now), merit, task.id, allocation)
        return Price(loss(task, self._policy, self.now), 0.0, task.id, allocation)

    def remove(self, allocation: Allocation) -> None:
        """Remove a run that is suspended."""
        for equals in (False, True):
            _, rows = self._levels.get((precedence_of(allocation).level, equals), (inf, {}))
            row = rows.get(len(allocation.nodes), [])
            at = bisect_left(row, self._price(allocation, equals))
            if at < len(row) and row[at].allocation is allocation:
                del row[at]


def loss(task: SchedTask, policy: Policy, now: float) -> float:
    """Return the node-seconds that are lost if the task is suspended now."""
    return work_lost(task, now) + len(task.placed) * restart_seconds(task, policy)


def work_lost(task: SchedTask, now: float) -> float:
    """Return the node-seconds of work since the last checkpoint or start.

    A program that saves when it is asked to leave loses nothing. Times in the future count as no lost work.
    """
    since = max((t for t in (task.saved_at, task.run_started_at) if t is not None), default=now)
    seconds = 0.0 if task.yields else now - since
    return len(task.placed) * (max(0.0, seconds) if isfinite(seconds) else 0.0)


def loss_of_equal(task: SchedTask, now: float) -> float:
    """Return the work that a run of the queued task's own level loses, rounded up to a power of two."""
    return 2.0 ** frexp(work_lost(task, now))[1]
