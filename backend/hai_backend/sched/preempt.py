"""Who must leave so that a newcomer fits, and nobody else.

Lower levels first, and there who loses least for what is gained: nodes x (seconds since the last checkpoint or start,
plus the cost of a restart) for each node that the newcomer can use. Then, where slices are on, runs of the newcomer's
own level that rank below it; among them work lost counts in steps of two, and of equals the lowest rank leaves first.
What turns out superfluous is taken back, so no victim can be spared; when all of them do not suffice, nobody leaves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import frexp, inf, isfinite
from typing import TYPE_CHECKING

from hai_backend.domain.snapshot import SchedTask
from hai_backend.sched.appraise import Guard, Worth, restart_seconds, run_level, slice_seconds
from hai_backend.sched.fit import slots
from hai_backend.sched.policy import Policy
from hai_backend.sched.pool import Grip, Holder, Need, Pool, Spot
from hai_backend.sched.queue import Verdict, Waiting
from hai_backend.sched.shares import Shares, Tier

if TYPE_CHECKING:
    from hai_backend.sched.group import Group


def loss(task: SchedTask, policy: Policy, now: float) -> float:
    """Node-seconds lost when the task is suspended now. Odd clocks count as no work lost."""
    return work_lost(task, now) + len(task.placed) * restart_seconds(task, policy)


def work_lost(task: SchedTask, now: float) -> float:
    """Node-seconds of work since the last checkpoint, or start; none of a program that saves when it is asked."""
    since = max((t for t in (task.saved_at, task.run_started_at) if t is not None), default=now)
    seconds = 0.0 if task.yields else now - since
    return len(task.placed) * (max(0.0, seconds) if isfinite(seconds) else 0.0)


class Ladder:
    """The runs of a group by level and rank."""

    def __init__(self) -> None:
        self._steps: dict[int, list[tuple[float, int, Holder]]] = {}
        self._nodes: dict[tuple[int, Guard], int] = {}

    def add(self, holder: Holder) -> None:
        """A run that may be asked to leave."""
        worth = _worth(holder)
        insort(self._steps.setdefault(worth.level, []), (worth.merit, holder.task.id, holder))
        self._count(holder, len(holder.spots))

    def remove(self, holder: Holder) -> None:
        """Forget a run; call it before its worth or its nodes change."""
        worth = _worth(holder)
        step = self._steps[worth.level]
        del step[bisect_left(step, (worth.merit, holder.task.id))]
        self._count(holder, -len(holder.spots))

    def _count(self, holder: Holder, nodes: int) -> None:
        key = (_worth(holder).level, _worth(holder).guard)
        self._nodes[key] = self._nodes.get(key, 0) + nodes

    def might_free(self, waiting: Waiting, policy: Policy, enough: int, apart: bool) -> bool:
        """A quick answer: False when the runs that may be asked to leave hold fewer than `enough` nodes.

        `apart`: where the group is divided, any equal may have to leave.
        """
        top = Guard.ALL if waiting.level >= policy.urgent else Guard.EQUALS
        nodes = sum(
            n for (lv, guard), n in self._nodes.items() if lv < waiting.level and guard <= top
        )
        equals = policy.time_slices or apart
        if not equals or nodes + self._nodes.get((waiting.level, Guard.NONE), 0) < enough:
            return nodes >= enough
        for merit, _, holder in self._steps.get(waiting.level, ()):
            if nodes >= enough or (merit >= waiting.merit and not apart):
                break
            nodes += len(holder.spots) if _worth(holder).guard is Guard.NONE else 0
        return nodes >= enough

    def below(self, waiting: Waiting, apart: bool) -> Iterator[tuple[int, list[Holder]]]:
        """The runs of each lower level, lowest first; then equals that rank below it, or all of them (`apart`)."""
        for level in sorted(level for level in self._steps if level <= waiting.level):
            step = self._steps[level]
            all_of_them = level < waiting.level or apart
            end = len(step) if all_of_them else bisect_left(step, (waiting.merit,))
            yield level, [holder for _, _, holder in step[:end]]


def _worth(holder: Holder) -> Worth:
    assert holder.worth is not None  # those without one are never put on a ladder
    return holder.worth


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
                    before = slots(spot, self._need, Grip.LEAVING)
                self._slots[spot] = slots(spot, self._need, Grip.LEAVING, self._gone)
                self.total += self._slots[spot] - before


def victims(
    group: Group, waiting: Waiting, already: int, now: float
) -> tuple[list[Holder], Verdict]:
    """The runs to suspend so that all ranks fit and not only `already`; none: who else is refused with this task."""
    policy, shares = group.policy, group.shares
    tally = _Tally(group.pool, waiting.need, already)
    chosen: list[Holder] = []
    refused = {Verdict.LINE}
    prices: Losses = {}

    def eligible(holder: Holder) -> bool:
        if not tally.useful(holder) or taken_at(holder, waiting, policy, shares) > now:
            return False
        verdict = spared(waiting, holder, policy, now)
        refused.add(verdict)
        return verdict is Verdict.LINE

    with shares.trying() as leave:
        for level, step in group.ladder.below(waiting, bool(shares)):
            found = [holder for holder in step if eligible(holder)]
            equals = level == waiting.level
            prices |= _losses_of_equals(found, now) if equals else _losses(found, policy, now)
            for victim in _cheapest_first(found, prices, tally, eligible):
                chosen.append(victim)
                tally.add(victim)
                leave(victim)
                if tally.missing <= 0:
                    return _without_superfluous(chosen, tally, prices), Verdict.LINE
    return [], min(refused, key=_NARROWEST.index)


_NARROWEST = (Verdict.NEXT, Verdict.LANE, Verdict.LINE)


def taken_at(holder: Holder, waiting: Waiting, policy: Policy, shares: Shares) -> float:
    """From when on this task may take the nodes of a run, by levels, parts, ranks and protection; inf: never."""
    worth = _worth(holder)
    if worth.level < waiting.level:
        return -inf if waiting.level >= policy.urgent else worth.guard_ends[0]
    if worth.level > waiting.level:
        return inf
    ranks_below = policy.time_slices and worth.merit < waiting.merit
    if shares.apart(waiting, holder):
        has, wants = shares.tier_of(holder), shares.tier(waiting)
        ranks_below = wants < has or (wants is has is not Tier.GUARANTEED and ranks_below)
    return worth.guard_ends[1] if ranks_below else inf


def spared(waiting: Waiting, holder: Holder, policy: Policy, now: float) -> Verdict:
    """Whom a run is spared from, though outranked: LANE, its user's own equals; NEXT, this task only; LINE, nobody."""
    if _own_equal(holder, waiting, policy):
        return Verdict.LANE
    return Verdict.NEXT if _takes_back(waiting, holder, policy, now) else Verdict.LINE


def _own_equal(holder: Holder, waiting: Waiting, policy: Policy) -> bool:
    """A user's tasks of one level do not interrupt one another: as asked, or as run."""
    task, newcomer = holder.task, waiting.task
    return task.user == newcomer.user and (
        task.priority == newcomer.priority or run_level(task, policy) == waiting.own_level
    )


def _takes_back(waiting: Waiting, holder: Holder, policy: Policy, now: float) -> bool:
    """Two tasks do not bounce: who had to leave for another one leaves it alone for a slice."""
    turns = [s.at for s in waiting.task.suspensions if s.for_task == holder.task.id]
    return bool(turns) and now - turns[-1] < slice_seconds(holder.task, policy)


Losses = dict[Holder, tuple[float, float]]
"""For each run what counts of its suspension (node-seconds), and its merit for ties."""


def _losses(step: list[Holder], policy: Policy, now: float) -> Losses:
    """Of runs of a lower level."""
    return {holder: (loss(holder.task, policy, now), 0.0) for holder in step}


def _losses_of_equals(step: list[Holder], now: float) -> Losses:
    return {
        holder: (2.0 ** frexp(work_lost(holder.task, now))[1], _worth(holder).merit)
        for holder in step
    }


def _cheapest_first(
    step: list[Holder], losses: Losses, tally: _Tally, eligible: Callable[[Holder], bool]
) -> Iterator[Holder]:
    """The next victim of one level, by loss for each rank that is still missing; at last those who free none alone.

    Who was eligible may be so no more when others of its share have been chosen. What a victim frees beyond what is
    missing counts for nothing, so its cost only grows: a heap of old costs is exact.
    """
    order = sorted(step, key=lambda h: (losses[h], h.task.id))
    gains = _shortlist(order, tally)

    def cost(holder: Holder) -> tuple[float, float, float, int]:
        useful, (lost, merit) = min(gains[holder], tally.missing), losses[holder]
        return (lost / useful if useful else inf, merit, lost, holder.task.id)

    heap = [(cost(holder), holder) for holder in gains]
    heapify(heap)
    while heap:
        known, holder = heappop(heap)
        if cost(holder) > known:
            heappush(heap, (cost(holder), holder))
        elif eligible(holder):
            yield holder
    yield from (h for h in order if h not in gains and eligible(h))


def _shortlist(order: list[Holder], tally: _Tally) -> dict[Holder, int]:
    """Of each size the cheapest few that would do alone, and what each of them frees."""
    sizes: dict[int, list[Holder]] = {}
    for holder in order:
        sizes.setdefault(len(holder.spots), []).append(holder)
    gains: dict[Holder, int] = {}
    for equals in sizes.values():
        gained = 0
        for holder in equals:
            if gained >= tally.missing:
                break
            gains[holder] = tally.gain(holder)
            gained += gains[holder]
    return gains


def _without_superfluous(chosen: list[Holder], tally: _Tally, losses: Losses) -> list[Holder]:
    kept = list(chosen)

    def firmest_first(holder: Holder) -> tuple[int, float, float, int]:
        lost, merit = losses[holder]
        return (-_worth(holder).level, -merit, -lost, holder.task.id)

    for victim in sorted(chosen, key=firmest_first):
        tally.spare(victim)
        if tally.missing <= 0:
            kept.remove(victim)
        else:
            tally.add(victim)
    return kept
