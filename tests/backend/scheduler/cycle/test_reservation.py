"""The reservation of the first task that lacks nodes: its nodes, its start, and the tasks that it delays."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Start, Suspend
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.cycle.reservation import Reservation, can_return_nodes, reserve
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import task_kind
from hai_backend.scheduler.testing import (
    NOW,
    leaving,
    node,
    nodes,
    queued,
    running,
    share,
    snap,
    starting,
)
from hai_backend.sim.replay.job import Job
from hai_backend.sim.replay.replay import Cluster, replay

LOW, NORMAL, HIGH = Priority.LOW, Priority.NORMAL, Priority.HIGH
PACKED = Group("default", packed=True)
SLICE = 6500.0
POLICY = Policy(overhead_share=0.01, ranking=Ranking.SUBMITTED)
WHOLE_RUNS = replace(POLICY, time_slices=False)
HIT = (Suspension(NOW - 7200, 5, higher=True),)


def after(snapshot: Snapshot, policy: Policy = POLICY) -> Cycle:
    cache = SchedulerCache.from_snapshot(snapshot, policy)
    cache.decide(NOW)
    found = cache.cycle_of(1)
    assert found is not None
    return found


def reserved(snapshot: Snapshot, policy: Policy = POLICY) -> tuple[float, list[str]]:
    """Return the seconds until task 1 is expected to start, and the reserved nodes."""
    cycle = after(snapshot, policy)
    found: Reservation = reserve(cycle.group, cycle.group.entries[1], NOW)
    assert found.now == NOW
    return found.start - NOW, [node.name for node in found.nodes]


def run(task: int, on: str, level: Priority = NORMAL, **settings: Any) -> SchedTask:
    """Return a run that history expects to continue for long."""
    return running(task, on, level, **({"run_seconds": 1e6} | settings))


@pytest.mark.parametrize(
    ("snapshot", "start", "names"),
    [
        pytest.param(snap(nodes(3), leaving(8, "n00"), run(9, "n01", HIGH), queued(1, 2, zone="x")), inf, [],
                     id="no nodes suit"),
        pytest.param(snap(nodes(3), run(7, "n00", HIGH, since=0), starting(8, "n01"), queued(1, 3)),
                     inf, ["n02", "n00", "n01"], id="of one that is being started nobody knows"),
        pytest.param(snap(nodes(3), leaving(8, "n00"), run(9, "n02", LOW, since=500, suspensions=HIT), queued(1, 3)),
                     SLICE - 500, ["n01", "n00", "n02"], id="free nodes, then those that are being left, then others"),
        pytest.param(snap(nodes(2), run(9, "n01", LOW, since=500, suspensions=HIT), queued(1, 2)),
                     SLICE - 500, ["n00", "n01"], id="when the protection of a lower run ends"),
        pytest.param(snap(nodes(4), run(7, "n03", HIGH), run(8, "n01", LOW, since=500, suspensions=HIT),
                          run(9, "n02", LOW, since=900, suspensions=HIT), queued(1, 3), queued(2, 4)),
                     SLICE - 500, ["n00", "n02", "n01"], id="who may be taken first, first"),
        pytest.param(snap(nodes(2), run(9, "n01", LOW, user="u1", since=500, suspensions=HIT), queued(1, 2)),
                     None, ["n00", "n01"], id="own runs are not taken"),
        pytest.param(snap(nodes(2), running(9, "n01", HIGH, since=10_000.0), queued(1, 2)),
                     30_000, ["n00", "n01"], id="a higher run is expected to end at even odds"),
        pytest.param(snap(nodes(2), running(9, "n01", HIGH, since=0.0, run_seconds=10_000.0), queued(1, 2)),
                     30_000, ["n00", "n01"], id="its earlier runs count"),
        pytest.param(snap(nodes(2), running(9, "n01", HIGH, since=-50.0, run_seconds=10_000.0), queued(1, 2)),
                     30_000, ["n00", "n01"], id="a start in the future counts as now"),
        pytest.param(snap(nodes(2), running(9, "n01", HIGH, run_started_at=None, run_seconds=10_000.0), queued(1, 2)),
                     30_000, ["n00", "n01"], id="an unknown start counts as now"),
    ],
)  # fmt: skip
def test_the_reservation_of_the_first_blocked_task(
    snapshot: Snapshot, start: float | None, names: list[str]
) -> None:
    found, nodes = reserved(snapshot)
    assert nodes == names
    assert found > 1e6 if start is None else found == pytest.approx(start, rel=0.1)


@pytest.mark.parametrize("began", [NOW, NOW + 50, None], ids=["now", "later", "unknown"])
def test_a_new_run_counts_its_earlier_runs(began: float | None) -> None:
    fresh = running(9, "n00", HIGH, run_started_at=began, run_seconds=100.0)
    expected = History().curve(task_kind(fresh)).remaining(100.0, 0.5)
    start, _ = reserved(snap(nodes(1), fresh, queued(1)))
    assert start == pytest.approx(expected)


def test_the_last_run_of_a_node_decides_when_it_is_free() -> None:
    runs = [
        run(8, "n00", LOW, since=500, suspensions=HIT),
        run(9, "n00", LOW, since=900, suspensions=HIT),
    ]
    assert reserved(snap(nodes(1), *runs, queued(1))) == (SLICE - 500, ["n00"])


def test_the_bound_counts_the_room_that_each_run_frees() -> None:
    """There is room for one rank now, for a second after task 9, and for a third after task 8."""
    runs = [
        run(8, "n00", LOW, gpu=3, since=500, suspensions=HIT),
        run(9, "n00", LOW, gpu=3, since=900, suspensions=HIT),
    ]
    for count, start in ((2, SLICE - 900), (3, SLICE - 500), (4, SLICE - 500)):
        state = snap(PACKED, nodes(1, gpus=8), *runs, queued(1, count, gpu=2))
        assert reserved(state) == (start, ["n00"])


def test_named_parts_get_one_rank_a_node() -> None:
    runs = [run(8, "n00", LOW, gpu=7, since=500, suspensions=HIT)]
    asks = queued(1, 2, gpu=2, assigned_nodes=("n00", "n01"))
    state = snap(PACKED, nodes(2, gpus=8), *runs, asks)
    assert reserved(state) == (SLICE - 500, ["n01", "n00"])


@pytest.mark.parametrize(
    ("facts", "policy", "expected"),
    [
        pytest.param({"priority": LOW, "user": "u1"}, WHOLE_RUNS, True, id="lower"),
        pytest.param({}, POLICY, True, id="an equal of another user"),
        pytest.param({}, WHOLE_RUNS, False, id="not without slices"),
        pytest.param({"user": "u1"}, POLICY, False, id="an own equal"),
    ],
)
def test_which_fillers_can_return_nodes(
    facts: dict[str, Any], policy: Policy, expected: bool
) -> None:
    filler = queued(2, **{"count": 1, **facts})
    entries = after(snap(nodes(1), run(9, "n00", HIGH), queued(1), filler)).group.entries
    assert can_return_nodes(entries[2], entries[1], policy) is expected


@pytest.mark.parametrize(
    ("minimum", "starts"),
    [pytest.param(SLICE, False, id="at the minimum"), pytest.param(SLICE - 1, True, id="later")],
)
def test_with_slices_an_own_task_is_held_back_for_a_near_start_only(
    minimum: float, starts: bool
) -> None:
    """The first task may start in a slice."""
    hunted = run(9, "n01", LOW, since=0.0, suspensions=HIT)
    own = queued(2, user="u1", run_seconds=1e6)
    policy = replace(POLICY, minimum_seconds=minimum)
    plan = SchedulerCache.from_snapshot(snap(nodes(2), hunted, queued(1, 2), own), policy).decide(
        NOW
    )
    assert [type(d) for d in plan.decisions] == [Start] * starts


def test_a_delayed_task_is_tried_again_after_the_minimum() -> None:
    hunted = run(9, "n01", LOW, since=SLICE - 899, suspensions=HIT)
    state = [nodes(2), hunted, queued(1, 2)]
    own = queued(2, user="u1", run_seconds=1e6)
    held_back = SchedulerCache.from_snapshot(
        snap(*state, own), replace(POLICY, minimum_seconds=SLICE)
    ).decide(NOW)
    assert held_back.wake_at == NOW + 899
    patient = Policy(ranking=Ranking.SUBMITTED, time_slices=False, minimum_seconds=300.0)
    urgent = run(9, "n01", HIGH, since=400.0)
    both = [queued(1, 2, created_at=NOW), queued(2, user="u1", run_seconds=1e9, created_at=NOW)]
    assert (
        SchedulerCache.from_snapshot(snap(nodes(2), urgent, *both), patient).decide(NOW).wake_at
        == NOW + 300
    )


def test_an_unknown_start_delays_no_task() -> None:
    endless = queued(2, 1, HIGH, run_seconds=1e9)
    state = snap(nodes(2), starting(9, "n01", HIGH), queued(1, 2, HIGH), endless)
    (start,) = SchedulerCache.from_snapshot(state, WHOLE_RUNS).decide(NOW).decisions
    assert start.task == 2


def test_a_task_that_needs_victims_uses_no_reserved_nodes() -> None:
    """Task 1 waits for n02. Task 2 would fit on the two free nodes and on nodes of task 9."""
    long = queued(2, 3, run_seconds=1e6)
    state = snap(nodes(4), running(8, "n02", HIGH), run(9, "n03", LOW), queued(1, 4), long)
    assert not SchedulerCache.from_snapshot(state, WHOLE_RUNS).decide(NOW).decisions


def test_victims_may_be_on_nodes_that_are_not_reserved() -> None:
    elsewhere, blocked = node("a", zone="A"), queued(1, 2, zone="B")
    runs = [run(7, "a", LOW), running(8, "n01", HIGH)]
    long = queued(2, run_seconds=1e6)
    state = snap(nodes(2, zone="B"), elsewhere, runs, blocked, long)
    (suspend,) = SchedulerCache.from_snapshot(state, WHOLE_RUNS).decide(NOW).decisions
    assert suspend == Suspend(7, 2, suspend.reason)


@pytest.mark.parametrize(
    ("patience", "minimum", "starts"),
    [
        pytest.param(2000.0, 900.0, True, id="not lifted yet"),
        pytest.param(1000.0, 900.0, False, id="its minimum would outlast the wait"),
        pytest.param(1000.0, 100.0, True, id="its minimum is over by then"),
    ],
)
def test_only_tasks_that_end_in_time_pass_a_lifted_task(
    patience: float, minimum: float, starts: bool
) -> None:
    """Task 1 may take the node of task 9 in 500 s."""
    policy = replace(POLICY, patience_seconds=patience, minimum_seconds=minimum)
    hunted = run(9, "n01", LOW, since=SLICE - 500, suspensions=HIT)
    state = snap(nodes(2), hunted, queued(1, 2, created_at=NOW - 1500), queued(2, run_seconds=1e6))
    plan = SchedulerCache.from_snapshot(state, policy).decide(NOW)
    assert [type(d) for d in plan.decisions] == [Start] * starts


@pytest.mark.parametrize(
    ("level", "user", "part", "starts"),
    [
        pytest.param(LOW, "u2", 0, True, id="it is lower"),
        pytest.param(NORMAL, "u2", 0, True, id="an equal"),
        pytest.param(NORMAL, "u1", 0, False, id="an own equal never leaves"),
        pytest.param(NORMAL, "u2", 1, False, id="nor does one within its guaranteed part"),
    ],
)
def test_only_tasks_that_can_be_suspended_in_time_pass_a_lifted_task(
    level: Priority, user: str, part: int, starts: bool
) -> None:
    policy = replace(POLICY, patience_seconds=1000.0)
    filler = queued(2, 1, level, user=user, run_seconds=1e6)
    urgent = running(9, "n01", HIGH, since=1000.0)  # expected to run for another 3 000 s
    state = [nodes(2), urgent, queued(1, 2, created_at=NOW - 1500), filler]
    plan = SchedulerCache.from_snapshot(snap(*state, *[share("u2", part)] * part), policy).decide(
        NOW
    )
    assert [type(d) for d in plan.decisions] == [Start] * starts


def test_a_reservation_that_cannot_be_met_delays_no_task() -> None:
    """One of the three runs of user u9 may be suspended, the others are guaranteed. Task 1 needs two nodes."""
    runs = [run(6 + i, f"n0{i}", user="u9", since=5000.0) for i in range(3)]
    lifted = queued(1, 3, created_at=NOW - 9e4)
    state = snap(
        nodes(4), runs, lifted, queued(2), share("u9", 2), share("u1", 0, 1), share("u2", 0, 1)
    )
    (start,) = SchedulerCache.from_snapshot(state, POLICY).decide(NOW).decisions
    assert start.task == 2


def test_a_gang_starts_in_a_stream_of_small_tasks_when_its_patience_is_over() -> None:
    """At each time, one of the small tasks has just started and is protected."""
    policy = Policy(patience_seconds=4 * 3600.0)
    gang = Job(1, "gang", "u", 600.0, 3600.0, 32, 4)
    small = [Job(i, "small", f"u{i % 4}", i * 145.0, 600.0, 8, 1) for i in range(2, 400)]
    outcome = replay([gang, *small], Cluster(4), policy)
    (record,) = (record for record in outcome.records if record.job is gang)
    assert record.first_start - gang.submit < policy.patience_seconds + 2 * policy.minimum_seconds
