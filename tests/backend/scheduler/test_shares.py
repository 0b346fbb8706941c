"""Shares (R11): user groups have guaranteed nodes, parts by weight, and limits. Unused nodes are lent and returned."""

from __future__ import annotations

from math import inf

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Start, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, ShareRow, Snapshot
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.explain.blockers import find_blockers
from hai_backend.scheduler.explain.remedy import Change, Remedy
from hai_backend.scheduler.explain.remedy_search import find_remedies
from hai_backend.scheduler.explain.trial_pass import run_pass
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.testing import leaving, nodes, queued, running, share, snap

IN_ORDER = Policy(ranking=Ranking.SUBMITTED)
WHOLE = Policy(ranking=Ranking.SUBMITTED, time_slices=False)
FULL, LIMIT = WaitReason.NOT_ENOUGH_NODES, WaitReason.OUT_OF_SHARE
PROMISED = WaitReason.WAITING_FOR_PREEMPTED
OLD = 3600.0  # seconds that a run has lasted: beyond the minimum, within its slice


def queued_by(task: int, user: str, count: int = 1, level: Priority = Priority.NORMAL) -> SchedTask:
    return queued(task, count, level, user=user)


def run_of(
    task: int, user: str, on: str, level: Priority = Priority.NORMAL, since: float = OLD
) -> SchedTask:
    return running(task, on, level, user=user, since=since)


def decisions_by_task(snapshot: Snapshot, policy: Policy) -> dict[int, object]:
    """Return for each task True if it starts, the task for which it is suspended, or why it waits."""
    found: dict[int, object] = {}
    for decision in schedule(snapshot, policy).decisions:
        match decision:
            case Start():
                found[decision.task] = True
            case Suspend():
                found[decision.task] = decision.for_task
            case Wait():
                found[decision.task] = decision.why
    return found


A, B = share("a", 2), share("b", 2)
CASES = [
    pytest.param(
        [nodes(2), queued_by(1, "b", 2), queued_by(2, "a", 2), share("a", 2)], {1: FULL, 2: True},
        id="who is within the guaranteed part comes before who came earlier",
    ),
    pytest.param(
        [nodes(2), queued_by(1, "x", 2, Priority.HIGH), queued_by(2, "a", 2), share("a", 2)],
        {1: True, 2: FULL}, id="but not before a higher level",
    ),
    pytest.param(
        [nodes(3), queued_by(1, "b"), queued_by(2, "a"), queued_by(3, "a"), queued_by(4, "a"), share("a", 1)],
        {1: True, 2: True, 3: True, 4: FULL}, id="beyond the part its tasks stand where they stood",
    ),
    pytest.param(
        [nodes(4), queued_by(1, "a", 4), share("a", 1), B], {1: True}, id="unused parts are lent",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00 n01"), run_of(2, "a", "n02 n03"), queued_by(3, "b", 2), A, B],
        {3: PROMISED, 1: 3}, id="what was lent comes back",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00 n01"), run_of(2, "a", "n02 n03", since=60.0), queued_by(3, "b", 2), A, B],
        {3: PROMISED, 1: 3}, id="from a run that has had its minimum",
    ),
    pytest.param(
        [nodes(2), run_of(1, "a", "n00 n01", since=60.0), queued_by(2, "b", 2), B],
        {2: FULL}, id="and not before",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00 n01"), run_of(2, "b", "n02 n03"), queued_by(3, "x", 2), A, B],
        {3: FULL}, id="who has no share takes nothing back",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00 n01 n02 n03"), queued_by(2, "b", 2), A, B],
        {2: FULL}, id="nobody is pushed below what is guaranteed",
    ),
    pytest.param(
        [nodes(4), run_of(1, "x", "n00 n01 n02"), run_of(2, "x", "n03"), queued_by(3, "a", 2), A],
        {3: PROMISED, 1: 3}, id="who has no share gives back all, and no more runs than needed",
    ),
    pytest.param(
        [nodes(4), run_of(1, "x", "n00 n01 n02 n03"), queued_by(2, "a"), queued_by(3, "a"), queued_by(4, "a"), A],
        {2: PROMISED, 3: PROMISED, 4: PROMISED, 1: 2}, id="what a large run leaves goes on in order",
    ),
    pytest.param(
        [nodes(2), run_of(1, "x", "n00 n01", Priority.HIGH), queued_by(2, "a", 2), A], {2: FULL},
        id="nothing comes back from a higher level",
    ),
    pytest.param(
        [nodes(2), run_of(1, "a", "n00 n01"), queued_by(2, "x", 2, Priority.HIGH), A],
        {2: PROMISED, 1: 2}, id="a higher level takes what is guaranteed, too",
    ),
    pytest.param(
        [nodes(4), queued_by(1, "a", 3), share("a", limit=2)], {1: WaitReason.SHARE_EXCEEDED},
        id="a task larger than the limit never starts",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00"), queued_by(2, "a2", 2), queued_by(3, "a2"), share("a a2", limit=2)],
        {2: LIMIT, 3: True}, id="the limit holds for all its users together",
    ),
    pytest.param(
        [nodes(4), queued_by(1, "a", 3), queued_by(2, "a"), queued_by(3, "b", 2),
         share("a", weight=1), share("b", weight=1)],
        {1: FULL, 2: True, 3: True}, id="weights order those who are within what they give",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00 n01"), run_of(2, "a", "n02 n03"), queued_by(3, "b", 2),
         share("a", weight=1), share("b", weight=1)],
        {3: PROMISED, 1: 3}, id="a part by weight comes back as well",
    ),
    pytest.param(
        [nodes(8), run_of(1, "a", "n00 n01 n02"), run_of(2, "a", "n03 n04 n05"), run_of(4, "x", "n06 n07"),
         queued_by(3, "b", 2), share("a", 2, weight=1), share("b", weight=2)],
        {3: PROMISED, 4: 3}, id="who has no part gives way first, as it loses least",
    ),
    pytest.param(
        [nodes(4), run_of(1, "a", "n00 n01"), run_of(2, "a", "n02 n03"), queued_by(3, "a2", 2),
         share("a a2", 2), B],
        {3: FULL}, id="within a user group only ranks count",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), CASES)
@pytest.mark.parametrize("policy", [IN_ORDER, WHOLE], ids=["slices", "whole runs"])
def test_parts_of_user_groups(
    policy: Policy, parts: list[SchedTask], expected: dict[int, object]
) -> None:
    assert decisions_by_task(snap(*parts), policy) == expected


def test_a_suspension_for_a_share_says_so() -> None:
    state = snap(nodes(2), run_of(1, "x", "n00 n01"), queued_by(2, "a", 2), A)
    (suspend,) = [d for d in schedule(state, IN_ORDER).decisions if isinstance(d, Suspend)]
    assert suspend.reason == (
        "task 2 of a at NORMAL needs 2 nodes; "
        "its user group uses less of its share than the user group of this run"
    )


def test_a_suspension_for_a_higher_level_says_so_in_a_divided_group() -> None:
    state = snap(nodes(2), run_of(1, "x", "n00 n01", Priority.LOW), queued_by(2, "a", 2), A)
    (suspend,) = [d for d in schedule(state, IN_ORDER).decisions if isinstance(d, Suspend)]
    assert suspend.reason == (
        "task 2 of a at NORMAL needs 2 nodes; "
        "this run counts as LOW and loses least (7330 node-seconds)"
    )


def test_a_lifted_task_comes_before_shares() -> None:
    late = queued(1, 2, user="x", created_at=1.0)
    found = snap(nodes(2), late, queued_by(2, "a", 2), share("a", 2))
    assert decisions_by_task(found, IN_ORDER) == {1: True, 2: FULL}


def test_positions_in_the_queue_follow_the_shares() -> None:
    full = run_of(9, "y", "n00 n01", Priority.EXTREME_HIGH)
    tasks = [queued_by(1, "x", 2), queued_by(2, "a", 2), queued_by(3, "a", 2), queued_by(4, "x", 2)]
    plan = schedule(snap(nodes(2), full, tasks, share("a", 2)), IN_ORDER)
    waits = {d.place: d.task for d in plan.decisions if isinstance(d, Wait)}
    assert [waits[place] for place in sorted(waits)] == [2, 1, 3, 4]


def test_a_task_promised_nodes_for_its_share_comes_before_the_task_it_passed() -> None:
    hopeless = queued(3, 9, user="a", created_at=0.0)
    tasks = [queued_by(1, "x"), queued_by(2, "a", 2), hopeless]
    state = snap(nodes(2), leaving(9, "n01"), tasks, share("a", 2))
    waits = {w.task: w for w in schedule(state, IN_ORDER).decisions if isinstance(w, Wait)}
    assert [(waits[n].why, waits[n].place, waits[n].ahead) for n in (2, 1)] == [
        (PROMISED, 1, ()),
        (FULL, 2, (2,)),
    ]
    found = run_pass(state, 1, IN_ORDER)
    assert found.cycle
    rule = find_blockers(found.cycle, 1, (2,)).rules[2]
    assert rule.endswith("its user group uses less than its guaranteed nodes")


def test_users_without_a_share_come_last() -> None:
    """On nodes that declare no cpus, a cpu is the smallest part of a node."""
    full = run_of(9, "a", "n00", Priority.EXTREME_HIGH)
    small = [queued(1, user="x", cpu=1), queued(2, user="a", cpu=1)]
    plan = schedule(
        snap(Group("default", packed=True), nodes(1), full, small, share("a", 2)), IN_ORDER
    )
    assert {d.task: d.place for d in plan.decisions if isinstance(d, Wait)} == {2: 1, 1: 2}


def test_a_run_that_was_asked_to_leave_is_not_retained() -> None:
    lent = run_of(1, "a", "n00 n01", Priority.LOW)
    tasks = [queued_by(2, "y", 2, Priority.HIGH), queued_by(3, "x", 2), queued_by(4, "a", 2)]
    plan = schedule(snap(nodes(2), lent, tasks, share("a", 2)), IN_ORDER)
    waits = {d.place: d.task for d in plan.decisions if isinstance(d, Wait)}
    assert [waits[place] for place in sorted(waits)] == [2, 4, 3]


def test_the_sentence_names_the_limit_and_what_is_held() -> None:
    found = snap(nodes(4), run_of(1, "a", "n00"), queued_by(2, "a", 2), share("a", limit=2))
    wait = run_pass(found, 2, IN_ORDER).wait
    assert wait is not None
    assert "User group a may hold 2 in group default and holds 1." in wait.message


def test_a_higher_limit_is_suggested_and_suffices() -> None:
    row = ShareRow("team", "default", frozenset("a"), limit=1)
    found = snap(nodes(4), queued_by(1, "a", 3), row)
    assert Remedy(Change.SHARE, count=2, starts=True) in find_remedies(found, 1, IN_ORDER)


def test_shares_above_the_capacity_do_not_loop() -> None:
    found = snap(nodes(1), queued_by(1, "a"), queued_by(2, "b"), share("a", 10), share("b", 10))
    plan = schedule(found, IN_ORDER)
    assert decisions_by_task(found, IN_ORDER) == {1: True, 2: FULL}
    assert (plan.wake_at or inf) > found.now
