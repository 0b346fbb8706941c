"""The cost of suspensions, the order of victims, and the quick check of the victim index."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from hai_backend.domain.node import Group as Settings
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Suspend
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.preemption.candidates import loss, work_lost
from hai_backend.scheduler.preemption.eligibility import preemptible_at, refusal_scope
from hai_backend.scheduler.queue.queue import QueueEntry, RefusalScope
from hai_backend.scheduler.testing import NOW, nodes, queued, running, share, snap

LOW, NORMAL, HIGH, TOP = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.EXTREME_HIGH
SLICE = 6500.0
POLICY = Policy(overhead_share=0.01, ranking=Ranking.SUBMITTED)
HIT = (Suspension(NOW - 7200, 5, higher=True),)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({"since": 100}, 200.0, id="since its start, on each node"),
        pytest.param({"since": 100, "saved_at": NOW - 30}, 60.0, id="since its checkpoint"),
        pytest.param({"since": 100, "saved_at": NOW - 900}, 200.0, id="a checkpoint of an earlier run"),
        pytest.param({"since": 100, "saved_at": NOW + 900}, 0.0, id="a checkpoint to come"),
        pytest.param({"since": 100, "yields": True}, 0.0, id="it saves when it is asked to leave"),
        pytest.param({"run_started_at": None}, 0.0, id="an unknown start"),
        pytest.param({"since": nan}, 0.0, id="no number"),
        pytest.param({"since": inf}, 0.0, id="an endless one"),
    ],
)  # fmt: skip
def test_work_lost(facts: dict[str, Any], expected: float) -> None:
    run = running(9, "a b", **facts)
    assert work_lost(run, NOW) == expected
    assert loss(run, POLICY, NOW) == expected + 2 * 65
    assert loss(replace(run, restart_seconds=7.0), POLICY, NOW) == expected + 2 * 7
    measured = replace(run, restart_seconds=7.0, save_seconds=9.0)
    assert loss(measured, POLICY, NOW) == expected + 2 * 7
    saves = replace(run, save_seconds=9.0)
    assert loss(saves, POLICY, NOW) == expected + 2 * (POLICY.restart_seconds + 9)


def group(*parts: Any, policy: Policy = POLICY) -> GroupState:
    cache = SchedulerCache.from_snapshot(snap(nodes(9), *parts), policy)
    cache.decide(NOW)
    return cache._groups["default"]


def might(found: GroupState, policy: Policy = POLICY, *, different_groups: bool = False) -> int:
    """Return how many nodes might be freed for task 1."""
    entry = found.entries[1]
    return next(
        n
        for n in range(10)
        if not found.victim_index.might_free(entry, policy, n + 1, different_groups)
    )


def run(task: int, on: str, level: Priority = NORMAL, **settings: Any) -> SchedTask:
    return running(task, on, level, **({"since": SLICE} | settings))


FULL = [run(90, "n04 n05 n06 n07 n08", TOP, user="x")]
ASKS = queued(1, 9, created_at=NOW - SLICE)


@pytest.mark.parametrize(
    ("runs", "asks", "policy", "expected"),
    [
        pytest.param([run(8, "n00 n01", LOW), run(9, "n02 n03")], ASKS, POLICY, 4, id="lower ones and equals"),
        pytest.param([run(8, "n00 n01", LOW), run(9, "n02 n03")], ASKS, replace(POLICY, time_slices=False), 2,
                     id="without slices lower ones"),
        pytest.param([run(8, "n00 n01", HIGH), run(9, "n02 n03", since=SLICE - 1)], ASKS, POLICY, 0,
                     id="neither higher ones nor equals in their slice"),
        pytest.param([run(8, "n00 n01", LOW, since=60, suspensions=HIT), run(9, "n02", LOW, since=60)], ASKS, POLICY,
                     1, id="nobody who is protected from all"),
        pytest.param([run(8, "n00 n01", LOW, since=60, suspensions=HIT), run(9, "n02", LOW, since=60)],
                     queued(1, 9, HIGH), POLICY, 3, id="but for an urgent task"),
        pytest.param([run(8, "n00 n01", LOW, since=60, unsaved_suspensions=2), run(9, "n02", LOW, since=60)],
                     queued(1, 9, HIGH), POLICY, 1, id="unless its last runs were suspended before they saved"),
        pytest.param([run(8, "n00"), run(9, "n01 n02", since=2 * SLICE, suspensions=(Suspension(NOW - 7200, 5),) * 20)],
                     ASKS, POLICY, 1, id="equals that are protected from equals count nothing"),
    ],
)  # fmt: skip
def test_might_free_counts_the_nodes_of_possible_victims(
    runs: list[SchedTask], asks: SchedTask, policy: Policy, expected: int
) -> None:
    assert might(group(*runs, *FULL, asks, policy=policy), policy) == expected


def test_in_a_divided_group_any_equal_may_be_suspended() -> None:
    found = group(run(8, "n00 n01", since=SLICE - 1), *FULL, ASKS)
    assert (might(found), might(found, different_groups=True)) == (0, 2)
    whole_nodes = replace(POLICY, time_slices=False)
    assert might(found, whole_nodes, different_groups=True) == 2


def test_victims_come_from_the_lowest_level_first() -> None:
    runs = [
        run(5, "n00", NORMAL, since=SLICE - 1), run(6, "n01", NORMAL), run(7, "n02", LOW), run(8, "n03", HIGH),
    ]  # fmt: skip
    found = group(*runs, *FULL, ASKS)
    below = {
        all_equals: [
            (level, [run.task.id for run in runs])
            for level, runs in found.victim_index.runs_by_level(found.entries[1], all_equals)
        ]
        for all_equals in (False, True)
    }
    assert below == {False: [(LOW, [7]), (NORMAL, [6])], True: [(LOW, [7]), (NORMAL, [6, 5])]}


@pytest.mark.parametrize(
    ("level", "facts", "asks", "expected"),
    [
        pytest.param(LOW, {}, queued(1, 9), -60 + SLICE, id="a protected lower run"),
        pytest.param(LOW, {}, queued(1, 9, HIGH), -inf, id="not from urgent tasks"),
        pytest.param(LOW, {"unsaved_suspensions": 2}, queued(1, 9, HIGH), 840, id="unless its last runs saved nothing"),
        pytest.param(HIGH, {}, queued(1, 9), inf, id="a higher run"),
        pytest.param(NORMAL, {}, queued(1, 9, created_at=NOW), inf, id="an equal that ranks higher"),
        pytest.param(NORMAL, {"since": SLICE, "suspensions": ()}, ASKS, 900 - SLICE, id="an equal that ranks lower"),
    ],
)  # fmt: skip
def test_from_when_on_a_run_may_be_suspended(
    level: Priority, facts: dict[str, Any], asks: SchedTask, expected: float
) -> None:
    found = group(run(9, "n00", level, **{"since": 60, "suspensions": HIT, **facts}), *FULL, asks)
    entry: QueueEntry = found.entries[1]
    assert preemptible_at(found.allocations[9], entry, POLICY, found.shares) - NOW == expected


@pytest.mark.parametrize(
    ("rows", "theirs", "mine", "merit", "slices", "expected"),
    [
        pytest.param([share("a", 0), share("b", 9)], "a", "b", 0.1, True, True, id="mine is guaranteed"),
        pytest.param([share("a", 0), share("b", 9)], "a", "b", 0.1, False, True, id="also without slices"),
        pytest.param([share("a", 1), share("b", 1)], "a", "b", 9.0, True, False, id="theirs alone is guaranteed"),
        pytest.param([share("a", 2), share("b", 9)], "a", "b", 9.0, True, False, id="both are guaranteed"),
        pytest.param([share("c", 1)], "a", "b", 9.0, True, True, id="without shares ranks count"),
        pytest.param([share("a", 0), share("b", 0)], "a", "b", 9.0, True, True, id="both are beyond: ranks count"),
        pytest.param([share("a", 0), share("b", 0)], "a", "b", 0.1, True, False, id="and it ranks below"),
        pytest.param([share("a", 0), share("b", 0)], "a", "b", 9.0, False, False, id="not without slices"),
    ],
)  # fmt: skip
def test_tiers_decide_which_runs_may_be_suspended(
    rows: list[Any], theirs: str, mine: str, merit: float, slices: bool, expected: bool
) -> None:
    policy = replace(POLICY, time_slices=slices)
    hold = run(9, "n00 n01", user=theirs, since=900.0)
    found = group(
        hold,
        run(90, "n02 n03 n04 n05 n06 n07 n08", TOP),
        queued(1, 9, user=mine),
        *rows,
        policy=policy,
    )
    found.entries[1].merit = merit * 2
    assert (
        preemptible_at(found.allocations[9], found.entries[1], policy, found.shares) < inf
    ) is expected


def test_equal_merits_suspend_nothing() -> None:
    found = group(run(9, "n00", HIGH, since=900.0), *FULL, queued(1, 9, priority=HIGH))
    entry, allocation = found.entries[1], found.allocations[9]
    assert allocation.precedence is not None
    entry.level, entry.merit = allocation.precedence.level, allocation.precedence.merit
    assert preemptible_at(allocation, entry, POLICY, found.shares) == inf
    entry.merit += 0.1
    assert preemptible_at(allocation, entry, POLICY, found.shares) < inf


def test_the_smallest_loss_per_node_decides() -> None:
    runs = [
        run(7, "n00", LOW, since=1000.0), run(8, "n01", LOW, since=1010.0), run(9, "n02 n03", LOW, since=800.0),
    ]  # fmt: skip
    plan = SchedulerCache.from_snapshot(snap(nodes(9), *runs, *FULL, queued(1, 2)), POLICY).decide(
        NOW
    )
    assert [d.task for d in plan.decisions if isinstance(d, Suspend)] == [9]


def test_a_rank_freed_by_two_victims_is_counted_once() -> None:
    """Each of the four runs frees one rank, but two runs on one node do not free more than one."""
    runs = [running(6 + i, f"n{i // 2:02}", LOW, since=100.0 + i, gpu=1) for i in range(4)]
    state = snap(Settings("default", packed=True), nodes(2, gpus=3), *runs, queued(1, 2, gpu=2))
    plan = SchedulerCache.from_snapshot(state, POLICY).decide(NOW)
    assert {d.task for d in plan.decisions if isinstance(d, Suspend)} == {6, 8}


def test_among_unneeded_equals_the_highest_merit_is_spared() -> None:
    """Runs 7 and 8 lose least, so they are chosen first. With run 9, which is on two nodes, one of them suffices."""
    runs = [
        run(7, "n00"),
        run(8, "n01", run_seconds=10 * SLICE),
        run(9, "n02 n03", since=4 * SLICE),
    ]
    policy = replace(POLICY, ranking=Ranking.ATTAINED)
    plan = SchedulerCache.from_snapshot(snap(nodes(9), *runs, *FULL, queued(1, 3)), policy).decide(
        NOW
    )
    assert {d.task for d in plan.decisions if isinstance(d, Suspend)} == {8, 9}


def test_among_equals_with_similar_losses_the_lowest_merit_is_suspended() -> None:
    """The run on two nodes has used most, and loses twice as much as each other run, which is the same per node."""
    runs = [run(7, "n00"), run(8, "n01"), run(9, "n02 n03"), *FULL]
    policy = replace(POLICY, ranking=Ranking.ATTAINED)
    plan = SchedulerCache.from_snapshot(snap(nodes(9), *runs, queued(1, 2)), policy).decide(NOW)
    assert [d.task for d in plan.decisions if isinstance(d, Suspend)] == [9]


@pytest.mark.parametrize(
    ("run_facts", "asks", "expected"),
    [
        pytest.param({}, {}, None, id="nobody"),
        pytest.param({"user": "u1"}, {}, RefusalScope.LANE, id="its own equal, as asked"),
        pytest.param({"user": "u1", "priority": HIGH}, {}, RefusalScope.LANE, id="its own equal, as run"),
        pytest.param({"user": "u1", "priority": NORMAL, "run_priority": HIGH}, {}, RefusalScope.LANE, id="by request"),
        pytest.param({"user": "u1", "priority": HIGH, "run_priority": HIGH}, {}, None, id="another level"),
        pytest.param({"since": SLICE - 1}, {"suspensions": (Suspension(NOW - SLICE + 1, 9),)}, RefusalScope.TASK,
                     id="for whom it had to leave lately"),
        pytest.param({"since": SLICE}, {"suspensions": (Suspension(NOW - SLICE, 9),)}, None, id="a slice ago"),
        pytest.param({}, {"suspensions": (Suspension(NOW - 1, 8),)}, None, id="for another task"),
        pytest.param({}, {"suspensions": (Suspension(NOW - SLICE, 9), Suspension(NOW - 1, 9))}, RefusalScope.TASK,
                     id="the last time counts"),
    ],
)  # fmt: skip
def test_the_refusal_scope_of_a_run(
    run_facts: dict[str, Any], asks: dict[str, Any], expected: RefusalScope | None
) -> None:
    found = group(running(9, "n00", **run_facts), *FULL, queued(1, 9, **asks))
    assert refusal_scope(found.entries[1], found.allocations[9], POLICY, NOW) is expected


def test_a_task_that_left_for_a_run_is_tried_again_after_a_slice() -> None:
    """No other event occurs until then."""
    left = (Suspension(NOW - 100, 9, higher=True),)
    wants = queued(1, waiting_since=NOW, suspensions=left)
    cache = SchedulerCache.from_snapshot(
        snap(nodes(1), running(9, "n00", LOW, since=2 * SLICE), wants), POLICY
    )
    plan = cache.decide(NOW)
    assert (plan.decisions, plan.wake_at) == ((), NOW - 100 + SLICE)
    (suspend,) = cache.decide(plan.wake_at).decisions
    assert (suspend.task, suspend.for_task) == (9, 1)
