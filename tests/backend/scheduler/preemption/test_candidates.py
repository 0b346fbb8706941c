"""The victims equal those of a slow and simple search, although few runs are examined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Group as Settings
from hai_backend.domain.node import Node
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Suspend
from hai_backend.domain.scheduling.snapshot import SchedTask, ShareRow, Snapshot
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.capacity import fit
from hai_backend.scheduler.capacity.node_info import Allocation, Occupancy
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.preemption import victim_selection
from hai_backend.scheduler.preemption.bounds import CapacityBound
from hai_backend.scheduler.preemption.candidates import VictimCandidates, loss, work_lost
from hai_backend.scheduler.preemption.eligibility import preemptible_at, refusal_scope
from hai_backend.scheduler.preemption.victim_index import precedence_of
from hai_backend.scheduler.preemption.victim_selection import RankCount, select_victims
from hai_backend.scheduler.queue.queue import QueueEntry, RefusalScope
from hai_backend.scheduler.testing import NOW, node, nodes, queued, running, share, snap

LOW, NORMAL, HIGH = Priority.LOW, Priority.NORMAL, Priority.HIGH
NODES = 14
POLICIES = [
    pytest.param(Policy(), id="learned"),
    pytest.param(Policy(ranking=Ranking.ATTAINED, overhead_share=0.05), id="attained"),
    pytest.param(Policy(ranking=Ranking.SUBMITTED, urgent=Priority.EXTREME_HIGH), id="submitted"),
    pytest.param(Policy(time_slices=False), id="whole"),
]


class Slow:
    """Examines, prices and sorts all runs for each task."""

    def __init__(
        self, group: GroupState, entry: QueueEntry, fitting_count: int, now: float
    ) -> None:
        self._group, self._entry, self._now = group, entry, now
        self._rank_count = RankCount(group.pool, entry.request, fitting_count)
        self._scopes = {RefusalScope.LINE}
        self._losses: dict[Allocation, tuple[float, float]] = {}

    def victims(self) -> tuple[list[Allocation], RefusalScope]:
        chosen: list[Allocation] = []
        different_groups = bool(self._group.shares)
        with self._group.shares.trial() as leave:
            for level, step in self._group.victim_index.runs_by_level(
                self._entry, different_groups
            ):
                found = [allocation for allocation in step if self._eligible(allocation)]
                self._price(found, equals=level == self._entry.level)
                for victim in self._cheapest_first(found):
                    chosen.append(victim)
                    self._rank_count.add(victim)
                    leave(victim)
                    if self._rank_count.missing <= 0:
                        return self._drop_unneeded(chosen), RefusalScope.LINE
        return [], min(self._scopes)

    def _eligible(self, allocation: Allocation) -> bool:
        policy, entry = self._group.policy, self._entry
        if not self._rank_count.is_useful(allocation):
            return False
        if preemptible_at(allocation, entry, policy, self._group.shares) > self._now:
            return False
        scope = refusal_scope(entry, allocation, policy, self._now)
        if scope is not None:
            self._scopes.add(scope)
        return scope is None

    def _price(self, found: list[Allocation], *, equals: bool) -> None:
        for allocation in found:
            if equals:
                lost, step = work_lost(allocation.task, self._now), 1.0
                while step <= lost:
                    step *= 2
                while lost and step > 2 * lost:
                    step /= 2
                self._losses[allocation] = (step, precedence_of(allocation).merit)
            else:
                self._losses[allocation] = (
                    loss(allocation.task, self._group.policy, self._now),
                    0.0,
                )

    def _cheapest_first(self, found: list[Allocation]) -> Iterator[Allocation]:
        order = sorted(found, key=lambda h: (self._losses[h], h.task.id))
        gains = self._shortlist(order)

        def cost(allocation: Allocation) -> tuple[float, float, float, int]:
            useful, (lost, merit) = (
                min(gains[allocation], self._rank_count.missing),
                self._losses[allocation],
            )
            return (lost / useful if useful else inf, merit, lost, allocation.task.id)

        heap = [(cost(allocation), allocation) for allocation in gains]
        heapify(heap)
        while heap:
            known, allocation = heappop(heap)
            if cost(allocation) > known:
                heappush(heap, (cost(allocation), allocation))
            elif self._eligible(allocation):
                yield allocation
        yield from (h for h in order if h not in gains and self._eligible(h))

    def _shortlist(self, order: list[Allocation]) -> dict[Allocation, int]:
        gains: dict[Allocation, int] = {}
        for size in {len(allocation.nodes) for allocation in order}:
            gained = 0
            for allocation in order:
                if len(allocation.nodes) == size and gained < self._rank_count.missing:
                    gains[allocation] = self._rank_count.gain(allocation)
                    gained += gains[allocation]
        return gains

    def _drop_unneeded(self, chosen: list[Allocation]) -> list[Allocation]:
        def descending_cost(allocation: Allocation) -> tuple[int, float, float, int]:
            lost, merit = self._losses[allocation]
            return (-precedence_of(allocation).level, -merit, -lost, allocation.task.id)

        kept = list(chosen)
        for victim in sorted(chosen, key=descending_cost):
            self._rank_count.drop(victim)
            if self._rank_count.missing <= 0:
                kept.remove(victim)
            else:
                self._rank_count.add(victim)
        return kept


def a_run(draw: Random, task: int, on: list[str], **settings: object) -> SchedTask:
    level, began = draw.choice(LEVELS[-5:]), NOW - draw.choice([60.0, 1000.0, 9000.0, 60_000.0])
    hits = (Suspension(NOW - 7200, 5, higher=True),)
    return running(
        task, " ".join(on), level, user=draw.choice("uvwx"), name=draw.choice("ab"), run_started_at=began,
        yields=draw.random() < 0.3, saved_at=draw.choice([None, NOW - 50.0, NOW - 3000.0]),
        suspensions=draw.choice([(), (), hits]), **settings,
    )  # fmt: skip


def filled(draw: Random, packed: bool) -> Iterator[SchedTask]:
    """Return runs on most of the nodes."""
    free = {f"n{i:02}": 4 for i in range(NODES)}
    for task in range(101, 141):
        gpu = draw.choice([0, 1, 2, 3]) if packed else 0
        fitting = [name for name, gpus in free.items() if gpus >= (gpu or 4)]
        on = draw.sample(fitting, min(len(fitting), draw.choice([1, 1, 2, 3])))
        for name in on:
            free[name] -= gpu or 4
        if on:
            yield a_run(draw, task, on, gpu=gpu)


def a_newcomer(draw: Random, task: int, packed: bool) -> SchedTask:
    named = tuple(f"n{i:02}" for i in draw.sample(range(NODES), 2)) if draw.random() < 0.2 else ()
    left = (Suspension(NOW - 100.0, draw.randrange(101, 141)),)
    return queued(
        task, len(named) or draw.choice([1, 2, 3, 5]), draw.choice(LEVELS[-5:]), user=draw.choice("uvwx"),
        name=draw.choice("ab"), zone=draw.choice(["", "", "A"]), assigned_nodes=named,
        gpu=draw.choice([0, 1, 2, 3]) if packed else 0, custom_rank=draw.choice([0.0, 0.0, 0.0, 1.0]),
        created_at=NOW - draw.choice([10.0, 9000.0, 30_000.0, 90_000.0]),
        suspensions=draw.choice([(), (), left]),
    )  # fmt: skip


def a_cluster(draw: Random) -> Snapshot:
    packed = draw.random() < 0.5
    parts = [share("u", guaranteed=2, weight=1), share("v w", weight=2), share("x", guaranteed=3)]
    found: list[Node] = [
        node(f"n{i:02}", gpus=4, zone=draw.choice(["", "A"])) for i in range(NODES)
    ]
    waiting = [a_newcomer(draw, task, packed) for task in range(1, 13)]
    shares = parts if draw.random() < 0.4 else []
    return snap(Settings("default", packed), found, *shares, *filled(draw, packed), *waiting)


def suspend(group: GroupState, victim: Allocation, cheapest: VictimCandidates) -> None:
    """Suspend a run as a pass does."""
    group.victim_index.remove(victim)
    cheapest.remove(victim)
    group.shares.add_retained(victim.task.user, -victim.units)
    victim.begin_release(reserved_for=1)


def group_of(snapshot: Snapshot, policy: Policy) -> GroupState:
    """Return the group, ready for a pass."""
    cache = SchedulerCache.from_snapshot(replace(snapshot, tasks=()), policy)
    cache.decide(NOW)
    cache.update_tasks(snapshot.tasks, (), NOW)
    group = cache._edit("default")
    group.advance(NOW)
    group.shares.divide(NODES * UNIT)
    return group


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 10**9))
@settings(max_examples=80, deadline=None)
def test_victims_equal_those_of_an_exhaustive_search(policy: Policy, seed: int) -> None:
    group = group_of(a_cluster(Random(seed)), policy)
    cheapest = VictimCandidates(group.victim_index, policy, NOW)
    for entry in group.queue.in_order():
        fitting_count = fit.rank_capacity(group.pool, entry.request, Occupancy.RELEASING)
        if fitting_count < entry.request.count:
            found = select_victims(group, entry, fitting_count, cheapest)
            assert found == Slow(group, entry, fitting_count, NOW).victims()
            for victim in found[0]:
                suspend(group, victim, cheapest)


BURST = share(" ".join(f"u{i}" for i in range(1, 41)), guaranteed=40)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Allocation]:
    """Record the runs for which eligibility is checked."""
    asked: list[Allocation] = []

    def noted(self: RankCount, allocation: Allocation) -> bool:
        asked.append(allocation)
        return usual(self, allocation)

    usual: Callable[[RankCount, Allocation], bool] = RankCount.is_useful
    monkeypatch.setattr(RankCount, "is_useful", noted)
    return asked


@pytest.mark.parametrize(
    ("level", "since", "shares"),
    [
        pytest.param(HIGH, 100.0, [], id="higher"),
        pytest.param(NORMAL, 90_000.0, [], id="equals"),
        pytest.param(HIGH, 100.0, [BURST], id="higher, in a divided group"),
        pytest.param(NORMAL, 1000.0, [BURST], id="equals, in a divided group"),
    ],
)
def test_a_burst_of_tasks_does_not_examine_all_runs_for_each_task(
    level: Priority, since: float, shares: list[ShareRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [running(100 + i, f"n{i:02}", NORMAL, since=since, yields=True) for i in range(90)]
    burst = [queued(i, 1, level, created_at=NOW - 80_000 + i) for i in range(1, 41)]
    cluster = snap(nodes(90), *shares, *runs, *burst)
    cache = SchedulerCache.from_snapshot(cluster, Policy(ranking=Ranking.SUBMITTED))
    asked = counted(monkeypatch)
    assert len(cache.decide(NOW).decisions) == 40
    assert len(asked) < 4 * 40


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_a_task_refused_by_the_bound_has_no_victims(policy: Policy, seed: int) -> None:
    snapshot = a_cluster(Random(seed))
    cache, slow = (
        SchedulerCache.from_snapshot(snapshot, policy),
        SchedulerCache.from_snapshot(snapshot, policy),
    )
    decisions, waits = cache.decide(NOW).decisions, [*cache.waits()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapacityBound, "refuses", lambda self, entry: False)
        assert slow.decide(NOW).decisions == decisions
    assert [*slow.waits()] == waits


def test_requests_above_the_bound_do_not_search_for_victims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def noted(
        group: GroupState, entry: QueueEntry, fitting_count: int, cheapest: VictimCandidates
    ) -> object:
        looks.append(entry.task.id)
        return select_victims(group, entry, fitting_count, cheapest)

    monkeypatch.setattr(victim_selection, "select_victims", noted)
    firm = [running(100 + i, f"n{i:02}", HIGH, gpu=6) for i in range(10)]
    small = [running(200 + i, f"n{i:02}", LOW, gpu=1) for i in range(10)]
    sizes = [queued(i, 1, HIGH, gpu=3, cpu=i) for i in range(1, 31)]
    found = nodes(10, gpus=8, cpus=64)
    cache = SchedulerCache.from_snapshot(
        snap(Settings("default", packed=True), found, *firm, *small, *sizes), Policy()
    )
    assert cache.decide(NOW).decisions == ()
    assert len(looks) == 1


HIT = (Suspension(NOW - 7200, 5, higher=True),)


@pytest.mark.parametrize(
    ("run", "level", "shares"),
    [
        pytest.param(running(9, "n00", LOW, gpu=4), HIGH, [], id="lower"),
        pytest.param(running(9, "n00", LOW, gpu=4, suspensions=HIT), HIGH, [], id="protected, not from urgent ones"),
        pytest.param(running(9, "n00", NORMAL, gpu=4, since=1000.0), NORMAL, [share("u1 u2", guaranteed=1)],
                     id="what is guaranteed to another user group"),
    ],
)  # fmt: skip
def test_a_refused_task_does_not_block_a_smaller_task(
    run: SchedTask, level: Priority, shares: list[ShareRow]
) -> None:
    firm = running(8, "n00", Priority.EXTREME_HIGH, gpu=4)
    asks = [queued(1, 1, level, gpu=8), queued(2, 1, level, gpu=4)]
    cluster = snap(Settings("default", packed=True), nodes(1, gpus=8), *shares, firm, run, *asks)
    (suspend,) = (
        SchedulerCache.from_snapshot(cluster, Policy(ranking=Ranking.SUBMITTED))
        .decide(NOW)
        .decisions
    )
    assert isinstance(suspend, Suspend)
    assert (suspend.task, suspend.for_task) == (9, 2)


def test_a_run_may_hold_nodes_that_have_moved_to_another_group() -> None:
    moved = [node("n00", gpus=8), node("n01", gpus=8, group="other")]
    runs = [running(8, "n00", HIGH, gpu=4), running(9, "n00 n01", LOW, gpu=2)]
    asks = [queued(1, 1, HIGH, gpu=8), queued(2, 1, HIGH, gpu=4)]
    cluster = snap(Settings("default", packed=True), Settings("other"), moved, *runs, *asks)
    (suspend,) = (
        SchedulerCache.from_snapshot(cluster, Policy(ranking=Ranking.SUBMITTED))
        .decide(NOW)
        .decisions
    )
    assert isinstance(suspend, Suspend)
    assert (suspend.task, suspend.for_task) == (9, 2)


def test_a_run_that_is_eligible_only_after_releases_is_not_a_victim() -> None:
    """One run of b may be suspended, the other is guaranteed.

    The run of c may be suspended only after the release of another run.
    """
    parts = [share("u a", weight=1), share("b", guaranteed=1), share("c")]
    old: dict[str, Any] = {"since": 1e5, "yields": True}
    runs = [
        running(7, "n00", user="a", **old), running(8, "n01", user="b", **old),
        running(9, "n02", user="b", **old), running(10, "n03", user="c", since=1000.0),
    ]  # fmt: skip
    asks = queued(1, 3, user="u", run_seconds=5000.0)
    policy = Policy(ranking=Ranking.ATTAINED, overhead_share=0.05)
    group = group_of(snap(nodes(4), *parts, *runs, asks), policy)
    group.shares.divide(4 * UNIT)
    entry = group.entries[1]
    cheapest = VictimCandidates(group.victim_index, policy, NOW)
    assert select_victims(group, entry, 0, cheapest) == Slow(group, entry, 0, NOW).victims()
    assert select_victims(group, entry, 0, cheapest) == ([], RefusalScope.LINE)
    smaller = group_of(snap(nodes(4), *parts, *runs, replace(asks, node_count=2)), policy)
    smaller.shares.divide(4 * UNIT)
    found, _ = select_victims(
        smaller, smaller.entries[1], 0, VictimCandidates(smaller.victim_index, policy, NOW)
    )
    assert [allocation.task.id for allocation in found] == [7, 8]


def test_a_protected_run_is_not_priced_for_equals() -> None:
    runs = [
        running(8, "n00", since=100.0),
        running(9, "n01", since=90_000.0),
        running(7, "n02", LOW, since=100.0),
    ]
    asks = queued(1, 4, created_at=NOW - 90_000)
    policy = Policy(ranking=Ranking.SUBMITTED)
    group = group_of(snap(nodes(4), *runs, asks), policy)
    steps = VictimCandidates(group.victim_index, policy, NOW).rows_by_level(
        group.entries[1], different_groups=False
    )
    assert [[price.task for row in rows for price in row] for rows in steps] == [[7], [9]]
