"""Who must leave so that a newcomer fits, and nobody else.

Lower levels first, and there who loses least for what is gained: nodes x (seconds since the last checkpoint or start,
plus the cost of a restart) for each node that the newcomer can use. Then, where slices are on, runs of the newcomer's
own level that rank below it; among them work lost counts in steps of two, and of equals the lowest rank leaves first.
What turns out superfluous is taken back, so no victim can be spared; when all of them do not suffice, nobody leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

from hai_backend.sched.group import Group
from hai_backend.sched.ladder import worth_of
from hai_backend.sched.losses import Losses, losses_of_equals, losses_of_lower
from hai_backend.sched.outranking import left_alone_until, spared, taken_at
from hai_backend.sched.queue import Verdict, Waiting
from hai_backend.sched.spots import Holder
from hai_backend.sched.tally import Tally


def victims(
    group: Group, waiting: Waiting, already: int, now: float
) -> tuple[list[Holder], Verdict]:
    """The runs to suspend so that all ranks fit and not only `already`; none: who else is refused with this task."""
    policy, shares = group.policy, group.shares
    tally = Tally(group.pool, waiting.need, already)
    chosen: list[Holder] = []
    refused = {Verdict.LINE}
    prices: Losses = {}

    def eligible(holder: Holder) -> bool:
        if not tally.useful(holder) or taken_at(holder, waiting, policy, shares) > now:
            return False
        verdict = spared(waiting, holder, policy, now)
        refused.add(verdict)
        if verdict is Verdict.NEXT:
            again = left_alone_until(waiting, holder, policy)
            group.alarms.set_once(again, waiting.task.id, now)
        return verdict is Verdict.LINE

    with shares.trying() as leave:
        for level, step in group.ladder.below(waiting, bool(shares)):
            found = [holder for holder in step if eligible(holder)]
            equals = level == waiting.level
            prices |= (
                losses_of_equals(found, now) if equals else losses_of_lower(found, policy, now)
            )
            for victim in _cheapest_first(found, prices, tally, eligible):
                chosen.append(victim)
                tally.add(victim)
                leave(victim)
                if tally.missing <= 0:
                    return _without_superfluous(chosen, tally, prices), Verdict.LINE
    return [], min(refused, key=_NARROWEST.index)


_NARROWEST = (Verdict.NEXT, Verdict.LANE, Verdict.LINE)


def _cheapest_first(
    step: list[Holder], losses: Losses, tally: Tally, eligible: Callable[[Holder], bool]
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


def _shortlist(order: list[Holder], tally: Tally) -> dict[Holder, int]:
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


def _without_superfluous(chosen: list[Holder], tally: Tally, losses: Losses) -> list[Holder]:
    kept = list(chosen)

    def firmest_first(holder: Holder) -> tuple[int, float, float, int]:
        lost, merit = losses[holder]
        return (-worth_of(holder).level, -merit, -lost, holder.task.id)

    for victim in sorted(chosen, key=firmest_first):
        tally.spare(victim)
        if tally.missing <= 0:
            kept.remove(victim)
        else:
            tally.add(victim)
    return kept
