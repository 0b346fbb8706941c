"""Selects the runs that are suspended so that a waiting task fits: the victims.

Runs of lower levels come first, and of these the run that loses least for what it frees: nodes x (seconds since the
last checkpoint or start, plus the cost of a restart) for each node that the task can use. Then, where time slices are
on, runs of the task's own level that rank below it. Among these, lost work counts in steps of two, and of equal losses
the lowest rank leaves first. Victims that turn out not to be needed are dropped. If all victims together do not
suffice, none is suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, merge
from math import inf

from hai_backend.scheduler.capacity.fit import ranks_on
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.candidates import Price, VictimCandidates
from hai_backend.scheduler.preemption.eligibility import immune_until, preemptible_at, refusal_scope
from hai_backend.scheduler.preemption.victim_index import rating_of
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.shares import Shares


def victims(
    group: GroupState, waiting: Waiting, already: int, selection: VictimCandidates
) -> tuple[list[Allocation], Verdict]:
    """The runs to suspend so that all ranks fit and not only `already`. If there are none: which tasks are refused
    too.
    """
    policy, shares, now = group.policy, group.shares, selection.now
    rank_count = RankCount(group.pool, waiting.request, already)
    chosen: list[Price] = []
    refused = {Verdict.LINE}

    def eligible(price: Price) -> bool:
        allocation = price.allocation
        if not rank_count.useful(allocation):
            return False
        if preemptible_at(allocation, waiting, policy, shares) > now:
            return False
        verdict = refusal_scope(waiting, allocation, policy, now)
        refused.add(verdict)
        if verdict is Verdict.NEXT:
            again = immune_until(waiting, allocation, policy)
            group.wakeups.set_once(again, waiting.task.id, now)
        return verdict is Verdict.LINE

    with shares.trial() as release:
        for step in selection.below(waiting, bool(shares), rank_count.on_named_nodes()):
            rows: list[Iterator[Price]] = [filter(eligible, row) for row in step]
            for victim in _cheapest_first(rows, rank_count, eligible, shares):
                chosen.append(victim)
                rank_count.add(victim.allocation)
                release(victim.allocation)
                if rank_count.missing <= 0:
                    return _needed_only(chosen, rank_count), Verdict.LINE
    return [], min(refused, key=_NARROWEST.index)


_NARROWEST = (Verdict.NEXT, Verdict.LANE, Verdict.LINE)


def _cheapest_first(
    rows: list[Iterator[Price]],
    rank_count: RankCount,
    eligible: Callable[[Price], bool],
    shares: Shares,
) -> Iterator[Price]:
    """The next victim of one level, by loss for each rank that is still missing; last, runs that free no rank alone.

    A run may stop being eligible when others of its share have been chosen. What a victim frees beyond the missing
    ranks counts for nothing, so its cost only grows: a heap of old costs is exact.
    """
    gains = _shortlist(rows, rank_count)

    def cost(price: Price) -> tuple[float, float, float, int]:
        useful = min(gains[price], rank_count.missing)
        each = price.lost / useful if useful else inf
        return (each, price.merit, price.lost, price.task)

    released: list[Allocation] = []
    heap = [(cost(price), price) for price in gains]
    heapify(heap)
    while heap:
        old_cost, price = heappop(heap)
        if cost(price) > old_cost:
            heappush(heap, (cost(price), price))
        elif eligible(price):
            released.append(price.allocation)
            yield price
    # Releases may make other runs eligible. Only runs that were eligible before count.
    with shares.restored(released):
        remaining = list(merge(*rows))
    yield from filter(eligible, remaining)


def _shortlist(rows: list[Iterator[Price]], rank_count: RankCount) -> dict[Price, int]:
    """The cheapest runs of each row that would suffice alone, and how many ranks each frees. Takes them from the
    rows.
    """
    gains: dict[Price, int] = {}
    for row in rows:
        gained = 0
        while gained < rank_count.missing and (price := next(row, None)) is not None:
            gains[price] = rank_count.gain(price.allocation)
            gained += gains[price]
    return gains


def _needed_only(chosen: list[Price], rank_count: RankCount) -> list[Allocation]:
    needed = [price.allocation for price in chosen]

    def firmest_first(price: Price) -> tuple[int, float, float, int]:
        return (-rating_of(price.allocation).level, -price.merit, -price.lost, price.task)

    for victim in (price.allocation for price in sorted(chosen, key=firmest_first)):
        rank_count.drop(victim)
        if rank_count.missing <= 0:
            needed.remove(victim)
        else:
            rank_count.add(victim)
    return needed


class RankCount:
    """Counts the ranks of a waiting task that would fit, as victims are added and dropped."""

    def __init__(self, pool: Pool, request: Request, total: int) -> None:
        self._request = request
        self._named = frozenset(pool.nodes_for(request)) if request.node_names else None
        self._node_classes = pool.classes_for(request)
        self._shared = pool.shared
        self._victims: dict[Allocation, None] = {}
        self._ranks: dict[NodeInfo, int] = {}
        self.total = total

    @property
    def missing(self) -> int:
        return self._request.count - self.total

    def gain(self, victim: Allocation) -> int:
        """How many more ranks would fit without this run."""
        if not self._shared:
            return sum(map(self._suits, victim.nodes))
        self.add(victim)
        total = self.total
        self.drop(victim)
        return total - self.total

    def add(self, victim: Allocation) -> None:
        self._victims[victim] = None
        self._recount(victim)

    def drop(self, victim: Allocation) -> None:
        del self._victims[victim]
        self._recount(victim)

    def useful(self, victim: Allocation) -> bool:
        return any(map(self._suits, victim.nodes))

    def on_named_nodes(self) -> set[Allocation]:
        """The runs on the nodes that the task names."""
        return {allocation for node in self._named or () for allocation in node.allocations}

    def _suits(self, node: NodeInfo) -> bool:
        if self._named is not None:
            return node in self._named
        return node.node_class in self._node_classes

    def _recount(self, victim: Allocation) -> None:
        for node in dict.fromkeys(victim.nodes):
            if self._suits(node):
                before = self._ranks.get(node)
                if before is None:
                    before = ranks_on(node, self._request, Occupancy.RELEASING)
                self._ranks[node] = ranks_on(
                    node, self._request, Occupancy.RELEASING, self._victims
                )
                self.total += self._ranks[node] - before
