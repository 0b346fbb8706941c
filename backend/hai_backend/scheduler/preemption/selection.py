"""Who loses least by leaving, asked by one newcomer after the other: within a pass the clock stands still.

So what a suspension costs is worked out once for all newcomers of a pass, and who has the cheapest runs before it looks
no further. Rows hold runs on equally many nodes, for among these the cheaper one is always the better victim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import NamedTuple

from hai_backend.scheduler.capacity.slots import Holder
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.cost import loss, loss_of_equal
from hai_backend.scheduler.preemption.victim_index import VictimIndex, worth_of
from hai_backend.scheduler.queue.queue import Waiting


class Price(NamedTuple):
    """What counts of a run's suspension (node-seconds), and its merit for ties."""

    lost: float
    merit: float
    task: int
    holder: Holder


Rows = dict[int, list[Price]]
"""Runs by the number of their nodes, the cheapest first."""


class VictimSelection:
    """The runs of a ladder as of one moment. Later the ladder may lose runs (`forget`), but gain none."""

    def __init__(self, victim_index: VictimIndex, policy: Policy, now: float) -> None:
        self.now = now
        self._victim_index = victim_index
        self._policy = policy
        self._steps: dict[tuple[int, bool], tuple[float, Rows]] = {}  # of merits up to the first

    def below(
        self, waiting: Waiting, apart: bool, on_named: Collection[Holder] = ()
    ) -> Iterator[list[Iterator[Price]]]:
        """For each step of `Ladder.below` its rows, each in order; `on_named`: who is on the nodes that it names."""
        for level, step in self._victim_index.below(waiting, apart):
            equals = level == waiting.level
            reach = waiting.merit if equals and not apart else inf
            if waiting.need.only:
                rows = self._arranged((holder for holder in step if holder in on_named), equals)
            else:
                rows = self._known(level, equals, reach, step)
            yield [_below(row, reach) for row in rows.values()]

    def _known(self, level: int, equals: bool, reach: float, step: Iterable[Holder]) -> Rows:
        known = self._steps.get((level, equals))
        if known is None or known[0] < reach:
            known = self._steps[level, equals] = (reach, self._arranged(step, equals))
        return known[1]

    def _arranged(self, step: Iterable[Holder], equals: bool) -> Rows:
        rows: Rows = {}
        for holder in step:
            if equals and worth_of(holder).guard_ends[1] > self.now:
                continue  # no newcomer of its level may take its nodes in this pass
            rows.setdefault(len(holder.spots), []).append(self._price(holder, equals))
        for row in rows.values():
            row.sort()
        return rows

    def _price(self, holder: Holder, equals: bool) -> Price:
        task = holder.task
        if equals:
            return Price(loss_of_equal(task, self.now), worth_of(holder).merit, task.id, holder)
        return Price(loss(task, self._policy, self.now), 0.0, task.id, holder)

    def forget(self, holder: Holder) -> None:
        """A run leaves."""
        for equals in (False, True):
            _, rows = self._steps.get((worth_of(holder).level, equals), (inf, {}))
            row = rows.get(len(holder.spots), [])
            at = bisect_left(row, self._price(holder, equals))
            if at < len(row) and row[at].holder is holder:
                del row[at]


def _below(row: list[Price], merit: float) -> Iterator[Price]:
    return (price for price in row if price.merit < merit)
