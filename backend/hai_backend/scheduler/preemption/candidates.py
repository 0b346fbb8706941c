"""Runs by the cost of their suspension, for all waiting tasks of one pass.

The time of a pass is fixed, so costs are computed once, and a search ends as soon as it has found the cheapest runs. A
row holds runs on equally many nodes: among these the cheaper one is always the better victim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from math import frexp, inf, isfinite
from typing import NamedTuple

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import VictimIndex, rating_of
from hai_backend.scheduler.queue.precedence import restart_seconds
from hai_backend.scheduler.queue.queue import Waiting


class Price(NamedTuple):
    """What the suspension of a run costs (node-seconds), and its merit for ties."""

    lost: float
    merit: float
    task: int
    allocation: Allocation


Rows = dict[int, list[Price]]
"""Runs by the number of their nodes, the cheapest first."""


class VictimCandidates:
    """The runs of a VictimIndex at one time. Runs may be removed later, but not added."""

    def __init__(self, victim_index: VictimIndex, policy: Policy, now: float) -> None:
        self.now = now
        self._victim_index = victim_index
        self._policy = policy
        self._steps: dict[tuple[int, bool], tuple[float, Rows]] = {}  # of merits up to the first

    def below(
        self, waiting: Waiting, different_groups: bool, on_named: Collection[Allocation] = ()
    ) -> Iterator[list[Iterator[Price]]]:
        """The rows of each level of `VictimIndex.below`, each in order. `on_named`: the runs on the nodes that the task
        names.
        """
        for level, step in self._victim_index.below(waiting, different_groups):
            equals = level == waiting.level
            max_merit = waiting.merit if equals and not different_groups else inf
            if waiting.request.node_names:
                rows = self._arranged((run for run in step if run in on_named), equals)
            else:
                rows = self._rows_of(level, equals, max_merit, step)
            yield [_below(row, max_merit) for row in rows.values()]

    def _rows_of(
        self, level: int, equals: bool, max_merit: float, step: Iterable[Allocation]
    ) -> Rows:
        cached = self._steps.get((level, equals))
        if cached is None or cached[0] < max_merit:
            cached = self._steps[level, equals] = (max_merit, self._arranged(step, equals))
        return cached[1]

    def _arranged(self, step: Iterable[Allocation], equals: bool) -> Rows:
        rows: Rows = {}
        for allocation in step:
            if equals and rating_of(allocation).guard_ends[1] > self.now:
                continue  # no task of its level may take its nodes in this pass
            rows.setdefault(len(allocation.nodes), []).append(self._price(allocation, equals))
        for row in rows.values():
            row.sort()
        return rows

    def _price(self, allocation: Allocation, equals: bool) -> Price:
        task = allocation.task
        if equals:
            merit = rating_of(allocation).merit
            return Price(loss_of_equal(task, self.now), merit, task.id, allocation)
        return Price(loss(task, self._policy, self.now), 0.0, task.id, allocation)

    def remove(self, allocation: Allocation) -> None:
        """The run is suspended."""
        for equals in (False, True):
            _, rows = self._steps.get((rating_of(allocation).level, equals), (inf, {}))
            row = rows.get(len(allocation.nodes), [])
            at = bisect_left(row, self._price(allocation, equals))
            if at < len(row) and row[at].allocation is allocation:
                del row[at]


def _below(row: list[Price], merit: float) -> Iterator[Price]:
    return (price for price in row if price.merit < merit)


def loss(task: SchedTask, policy: Policy, now: float) -> float:
    """Node-seconds lost when the task is suspended now. Times in the future count as no work lost."""
    return work_lost(task, now) + len(task.placed) * restart_seconds(task, policy)


def work_lost(task: SchedTask, now: float) -> float:
    """Node-seconds of work since the last checkpoint, or start; 0 for a program that saves when it is asked to
    leave.
    """
    since = max((t for t in (task.saved_at, task.run_started_at) if t is not None), default=now)
    seconds = 0.0 if task.yields else now - since
    return len(task.placed) * (max(0.0, seconds) if isfinite(seconds) else 0.0)


def loss_of_equal(task: SchedTask, now: float) -> float:
    """The same for runs of the waiting task's own level: lost work counts in steps of two."""
    return 2.0 ** frexp(work_lost(task, now))[1]
