"""Selects the runs that are suspended so that a queued task fits: the victims.

1. Runs of lower levels come first, the lowest level first. Within a level, the run with the smallest loss per freed
   rank comes first. The loss is nodes x (seconds since the last checkpoint or start, plus the cost of a restart).
2. If time slices are on, runs of the task's own level that rank below the task come next. Their losses are rounded up
   to powers of two, and among equal losses the run with the lowest merit comes first.
3. Victims that turn out not to be needed are dropped. If all victims together do not suffice, none is suspended.
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
from hai_backend.scheduler.preemption.victim_index import precedence_of
from hai_backend.scheduler.queue.queue import QueueEntry, RefusalScope
from hai_backend.scheduler.shares import Shares


def select_victims(
    group: GroupState, entry: QueueEntry, fitting_count: int, selection: VictimCandidates
) -> tuple[list[Allocation], RefusalScope]:
    """Return the runs to suspend so that all ranks fit, and which tasks are refused if there are no such runs.

    `fitting_count` ranks fit without any suspension.
    """
    policy, shares, now = group.policy, group.shares, selection.now
    rank_count = RankCount(group.pool, entry.request, fitting_count)
    chosen: list[Price] = []
    scopes = {RefusalScope.LINE}

    def eligible(price: Price) -> bool:
        """Return whether a run may be suspended for the task now and frees a rank."""
        allocation = price.allocation
        if not rank_count.is_useful(allocation):
            return False
        if preemptible_at(allocation, entry, policy, shares) > now:
            return False
        scope = refusal_scope(entry, allocation, policy, now)
        if scope is None:
            return True
        scopes.add(scope)
        if scope is RefusalScope.TASK:
            group.wakeups.set_once(immune_until(entry, allocation, policy), entry.task.id, now)
        return False

    with shares.trial() as release:
        for rows_of_level in selection.rows_by_level(
            entry, bool(shares), rank_count.on_named_nodes()
        ):
            rows: list[Iterator[Price]] = [filter(eligible, row) for row in rows_of_level]
            for victim in _cheapest_first(rows, rank_count, eligible, shares):
                chosen.append(victim)
                rank_count.add(victim.allocation)
                release(victim.allocation)
                if rank_count.missing <= 0:
                    return _drop_unneeded(chosen, rank_count), RefusalScope.LINE
    return [], min(scopes)


def _cheapest_first(
    rows: list[Iterator[Price]],
    rank_count: RankCount,
    eligible: Callable[[Price], bool],
    shares: Shares,
) -> Iterator[Price]:
    """Yield the eligible runs of one level by loss per rank that is still missing, last those that free no rank alone.

    A run may stop being eligible when other runs of its share have been chosen. The cost of a run only grows, because
    ranks that it frees beyond the missing ones do not count. So a heap of outdated costs yields the right order.
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
    # Releases may make other runs eligible. Only runs that were eligible before the releases are considered.
    with shares.without_releases(released):
        remaining = list(merge(*rows))
    yield from filter(eligible, remaining)


def _shortlist(rows: list[Iterator[Price]], rank_count: RankCount) -> dict[Price, int]:
    """Take the cheapest runs that would suffice alone from each row, and return how many ranks each of them frees."""
    gains: dict[Price, int] = {}
    for row in rows:
        gained = 0
        while gained < rank_count.missing and (price := next(row, None)) is not None:
            gains[price] = rank_count.gain(price.allocation)
            gained += gains[price]
    return gains


def _drop_unneeded(chosen: list[Price], rank_count: RankCount) -> list[Allocation]:
    """Return the victims without which the task does not fit. The most expensive victims are dropped first."""
    needed = [price.allocation for price in chosen]

    def descending_cost(price: Price) -> tuple[int, float, float, int]:
        return (-precedence_of(price.allocation).level, -price.merit, -price.lost, price.task)

    for victim in (price.allocation for price in sorted(chosen, key=descending_cost)):
        rank_count.drop(victim)
        if rank_count.missing <= 0:
            needed.remove(victim)
        else:
            rank_count.add(victim)
    return needed


class RankCount:
    """Counts the ranks of a queued task that would fit, as victims are added and dropped."""

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
        """Return how many more ranks would fit without this run."""
        if not self._shared:
            return sum(map(self._suits, victim.nodes))
        self.add(victim)
        total = self.total
        self.drop(victim)
        return total - self.total

    def add(self, victim: Allocation) -> None:
        """Count the ranks that fit after this run has left."""
        self._victims[victim] = None
        self._recount(victim)

    def drop(self, victim: Allocation) -> None:
        """Undo `add`."""
        del self._victims[victim]
        self._recount(victim)

    def is_useful(self, victim: Allocation) -> bool:
        """Return whether the run is on a node that the task can use."""
        return any(map(self._suits, victim.nodes))

    def on_named_nodes(self) -> set[Allocation]:
        """Return the runs on the nodes that the task names."""
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
