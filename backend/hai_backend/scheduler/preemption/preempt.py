"""Who must leave so that a newcomer fits, and nobody else.

Lower levels first, and there who loses least for what is gained: nodes x (seconds since the last checkpoint or start,
plus the cost of a restart) for each node that the newcomer can use. Then, where slices are on, runs of the newcomer's
own level that rank below it; among them work lost counts in steps of two, and of equals the lowest rank leaves first.
What turns out superfluous is taken back, so no victim can be spared; when all of them do not suffice, nobody leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, merge
from math import inf

from hai_backend.scheduler.capacity.slots import Holder
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.eligibility import left_alone_until, spared, taken_at
from hai_backend.scheduler.preemption.rank_count import RankCount
from hai_backend.scheduler.preemption.selection import Price, VictimSelection
from hai_backend.scheduler.preemption.victim_index import worth_of
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.shares import Shares


def victims(
    group: GroupState, waiting: Waiting, already: int, cheapest: VictimSelection
) -> tuple[list[Holder], Verdict]:
    """The runs to suspend so that all ranks fit and not only `already`; none: who else is refused with this task."""
    policy, shares, now = group.policy, group.shares, cheapest.now
    tally = RankCount(group.pool, waiting.need, already)
    chosen: list[Price] = []
    refused = {Verdict.LINE}

    def eligible(price: Price) -> bool:
        holder = price.holder
        if not tally.useful(holder) or taken_at(holder, waiting, policy, shares) > now:
            return False
        verdict = spared(waiting, holder, policy, now)
        refused.add(verdict)
        if verdict is Verdict.NEXT:
            again = left_alone_until(waiting, holder, policy)
            group.alarms.set_once(again, waiting.task.id, now)
        return verdict is Verdict.LINE

    with shares.trying() as leave:
        for step in cheapest.below(waiting, bool(shares), tally.on_named()):
            rows: list[Iterator[Price]] = [filter(eligible, row) for row in step]
            for victim in _cheapest_first(rows, tally, eligible, shares):
                chosen.append(victim)
                tally.add(victim.holder)
                leave(victim.holder)
                if tally.missing <= 0:
                    return _without_superfluous(chosen, tally), Verdict.LINE
    return [], min(refused, key=_NARROWEST.index)


_NARROWEST = (Verdict.NEXT, Verdict.LANE, Verdict.LINE)


def _cheapest_first(
    rows: list[Iterator[Price]], tally: RankCount, eligible: Callable[[Price], bool], shares: Shares
) -> Iterator[Price]:
    """The next victim of one level, by loss for each rank that is still missing; at last those who free none alone.

    Who was eligible may be so no more when others of its share have been chosen. What a victim frees beyond what is
    missing counts for nothing, so its cost only grows: a heap of old costs is exact.
    """
    gains = _shortlist(rows, tally)

    def cost(price: Price) -> tuple[float, float, float, int]:
        useful = min(gains[price], tally.missing)
        each = price.lost / useful if useful else inf
        return (each, price.merit, price.lost, price.task)

    gone: list[Holder] = []
    heap = [(cost(price), price) for price in gains]
    heapify(heap)
    while heap:
        known, price = heappop(heap)
        if cost(price) > known:
            heappush(heap, (cost(price), price))
        elif eligible(price):
            gone.append(price.holder)
            yield price
    # who leaves may make others eligible: only those count who were so before
    with shares.back(gone):
        rest = list(merge(*rows))
    yield from filter(eligible, rest)


def _shortlist(rows: list[Iterator[Price]], tally: RankCount) -> dict[Price, int]:
    """Of each row the cheapest few that would do alone, and what each of them frees. The rows go on behind them."""
    gains: dict[Price, int] = {}
    for row in rows:
        gained = 0
        while gained < tally.missing and (price := next(row, None)) is not None:
            gains[price] = tally.gain(price.holder)
            gained += gains[price]
    return gains


def _without_superfluous(chosen: list[Price], tally: RankCount) -> list[Holder]:
    kept = [price.holder for price in chosen]

    def firmest_first(price: Price) -> tuple[int, float, float, int]:
        return (-worth_of(price.holder).level, -price.merit, -price.lost, price.task)

    for victim in (price.holder for price in sorted(chosen, key=firmest_first)):
        tally.spare(victim)
        if tally.missing <= 0:
            kept.remove(victim)
        else:
            tally.add(victim)
    return kept
