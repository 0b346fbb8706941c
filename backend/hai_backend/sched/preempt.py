"""Who must leave so that a newcomer fits, and nobody else.

Lower levels first; within a level, who loses least for what is gained: nodes x (seconds since the last checkpoint or
start, plus the cost of a restart) for each node that the newcomer can use. What turns out superfluous is taken back, so
no victim can be spared; and when all of them together do not suffice, nobody leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf, isfinite

from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask
from hai_backend.sched.fit import slots
from hai_backend.sched.order import Waiting
from hai_backend.sched.policy import Policy
from hai_backend.sched.pool import LEAVING, Holder, Need, Pool, Spot


def loss(task: SchedTask, policy: Policy, now: float) -> float:
    """Node-seconds lost when the task is suspended now. Odd clocks count as no work lost."""
    since = max((t for t in (task.saved_at, task.run_started_at) if t is not None), default=now)
    seconds = now - since
    return len(task.placed) * (
        (max(0.0, seconds) if isfinite(seconds) else 0.0) + policy.restart_seconds
    )


class Ladder:
    """The running tasks of one pool by level and size, each list by loss: cheapest victims first."""

    def __init__(self, running: list[Holder]) -> None:
        self._steps: dict[int, dict[int, list[Holder]]] = {}
        for holder in sorted(running, key=lambda holder: (holder.loss, holder.task)):
            sizes = self._steps.setdefault(holder.level, {})
            sizes.setdefault(len(holder.spots), []).append(holder)

    def below(self, level: int) -> Iterator[list[list[Holder]]]:
        """The lists of each level below, lowest level first."""
        for step in sorted(step for step in self._steps if step < level):
            yield list(self._steps[step].values())

    def remove(self, victim: Holder) -> None:
        """Forget a task that is leaving; call it before its level changes."""
        self._steps[victim.level][len(victim.spots)].remove(victim)


class _Tally:
    """How many ranks of the newcomer would fit, as victims are added and taken back."""

    def __init__(self, pool: Pool, need: Need, total: int) -> None:
        self._need = need
        self._suiting = frozenset(pool.spots_for(need)) if need.only else None
        self._kinds = pool.kinds_for(need)
        self._shared = pool.shared
        self._gone: dict[Holder, None] = {}
        self._slots: dict[Spot, int] = {}
        self.total = total

    @property
    def missing(self) -> int:
        return self._need.count - self.total

    def gain(self, victim: Holder) -> int:
        """How many more ranks would fit without this one."""
        if not self._shared:
            return sum(map(self._suits, victim.spots))
        self.add(victim)
        total = self.total
        self.spare(victim)
        return total - self.total

    def add(self, victim: Holder) -> None:
        self._gone[victim] = None
        self._recount(victim)

    def spare(self, victim: Holder) -> None:
        del self._gone[victim]
        self._recount(victim)

    def useful(self, victim: Holder) -> bool:
        return any(map(self._suits, victim.spots))

    def _suits(self, spot: Spot) -> bool:
        return spot.kind in self._kinds if self._suiting is None else spot in self._suiting

    def _recount(self, victim: Holder) -> None:
        for spot in dict.fromkeys(victim.spots):
            if self._suits(spot):
                before = self._slots.get(spot)
                if before is None:
                    before = slots(spot, self._need, LEAVING)
                self._slots[spot] = slots(spot, self._need, LEAVING, self._gone)
                self.total += self._slots[spot] - before


def victims(pool: Pool, ladder: Ladder, waiting: Waiting, already: int) -> list[Holder]:
    """The running tasks to suspend so that all ranks fit and not only `already`; empty when that cannot be."""
    newcomer, level = waiting.task, waiting.level
    tally = _Tally(pool, waiting.need, already)
    chosen: list[Holder] = []

    def eligible(holder: Holder) -> bool:
        return tally.useful(holder) and not _own_equal(holder, newcomer, level)

    for step in ladder.below(level):
        for victim in _cheapest_first(step, tally, eligible):
            chosen.append(victim)
            tally.add(victim)
            if tally.missing <= 0:
                return _without_superfluous(chosen, tally)
    return []


def _own_equal(holder: Holder, newcomer: SchedTask, level: Priority) -> bool:
    """A user's tasks of one level do not interrupt one another: as asked, or as run."""
    return holder.user == newcomer.user and (
        holder.asked == newcomer.priority or holder.run_level == level
    )


def _cheapest_first(
    step: list[list[Holder]], tally: _Tally, eligible: Callable[[Holder], bool]
) -> Iterator[Holder]:
    """The next victim of one level, by loss for each rank that is still missing; at last those who free none alone.

    What a victim frees beyond what is missing counts for nothing, so its cost only grows: a heap of old costs is exact.
    """
    gains = _shortlist(step, tally, eligible)

    def cost(holder: Holder) -> tuple[float, float, int]:
        useful = min(gains[holder], tally.missing)
        return (holder.loss / useful if useful else inf, holder.loss, holder.task)

    heap = [(cost(holder), holder.task, holder) for holder in gains]
    heapify(heap)
    while heap:
        known, task, holder = heappop(heap)
        if cost(holder) > known:
            heappush(heap, (cost(holder), task, holder))
        else:
            yield holder
    yield from (h for equals in step for h in equals if h not in gains and eligible(h))


def _shortlist(
    step: list[list[Holder]], tally: _Tally, eligible: Callable[[Holder], bool]
) -> dict[Holder, int]:
    """Of each size the cheapest few that would do alone, and what each of them frees."""
    gains: dict[Holder, int] = {}
    for equals in step:
        gained = 0
        for holder in equals:
            if gained >= tally.missing:
                break
            if eligible(holder):
                gains[holder] = tally.gain(holder)
                gained += gains[holder]
    return gains


def _without_superfluous(chosen: list[Holder], tally: _Tally) -> list[Holder]:
    kept = list(chosen)
    for victim in sorted(chosen, key=lambda holder: (-holder.level, -holder.loss, holder.task)):
        tally.spare(victim)
        if tally.missing <= 0:
            kept.remove(victim)
        else:
            tally.add(victim)
    return kept
