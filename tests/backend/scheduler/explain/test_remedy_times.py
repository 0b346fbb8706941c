"""The times at which a queued task may get nodes, and snapshots with remedies applied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler import Policy
from hai_backend.scheduler.explain.remedy import (
    Cause,
    Change,
    Remedy,
    allowed_nodes,
    apply_remedy,
    candidate_nodes,
    find_task,
)
from hai_backend.scheduler.explain.remedy_times import Why, list_remedy_times
from hai_backend.scheduler.explain.trial_pass import run_pass
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.queue.history import STARTS, bin_of
from hai_backend.scheduler.testing import (
    NOW,
    node,
    nodes,
    queued,
    quota,
    running,
    share,
    snap,
    starting,
)

LOW, NORMAL, ABOVE, HIGH, AUTO = (
    Priority.LOW, Priority.NORMAL, Priority.ABOVE_NORMAL, Priority.HIGH, Priority.AUTO,
)  # fmt: skip
POLICY = Policy(overhead_share=0.01, ranking=Ranking.SUBMITTED)
SLICE, DAY = 6500.0, 86_400.0
TASK = queued(1, created_at=NOW - 1000)


def found(task: SchedTask, *runs: Any, policy: Policy = POLICY) -> dict[float, Why]:
    """Return the times as seconds from now."""
    cycle = run_pass(snap(nodes(3), task, *runs), task.id, policy).cycle
    assert cycle is not None
    return {at - NOW: why for at, why in list_remedy_times(task, cycle.group, NOW).items()}


OWN = {SLICE - 1000: (Cause.TURN, 0), DAY - 1000: (Cause.LIFT, 0)}


@pytest.mark.parametrize(
    ("task", "runs", "expected"),
    [
        pytest.param(TASK, [], OWN, id="its own"),
        pytest.param(queued(1, created_at=NOW - DAY), [], {}, id="past"),
        pytest.param(queued(1, created_at=NOW - 1000, not_before=NOW + 50), [], {50.0: (Cause.DELAY, 0), **OWN},
                     id="put off"),
        pytest.param(TASK, [running(9, "n00", since=60)],
                     {840.0: (Cause.PROTECTION, 9), **OWN, SLICE - 60: (Cause.SLICE, 9)}, id="of a run"),
        pytest.param(TASK, [starting(9, "n00", since=60)], OWN, id="not of one that is being started"),
        pytest.param(replace(TASK, suspensions=(Suspension(NOW - 500, 9, higher=True),)),
                     [running(9, "n00", HIGH, since=60)],
                     {840.0: (Cause.PROTECTION, 9), SLICE - 500: (Cause.PROTECTION, 9), **OWN,
                      SLICE - 60: (Cause.SLICE, 9)}, id="of one that it had to leave for, and leaves alone"),
        pytest.param(TASK, [running(9, "n00", run_started_at=None)], OWN, id="not of one with an unknown start"),
        pytest.param(TASK, [running(9, "n00", ABOVE, since=60)],
                     {840.0: (Cause.PROTECTION, 9), 1740.0: (Cause.DEMOTION, 9), **OWN, SLICE - 60: (Cause.SLICE, 9)},
                     id="a demotion"),
        pytest.param(TASK, [running(9, "n00", since=1000, suspensions=(Suspension(NOW - 2000, 5, higher=True),))],
                     {SLICE - 1000: (Cause.TURN, 0), SLICE + 800: (Cause.PROTECTION, 9), DAY - 1000: (Cause.LIFT, 0)},
                     id="of several for one moment the first"),
    ],
)  # fmt: skip
def test_the_remedy_times_of_a_queued_task(
    task: SchedTask, runs: list[Any], expected: dict[float, Why]
) -> None:
    assert found(task, *runs) == expected
    assert list(found(task, *runs)) == sorted(expected)


def test_rank_is_the_least_preferred_cause() -> None:
    policy = Policy(overhead_share=0.01, ranking=Ranking.ATTAINED)
    causes = [
        cause for cause, _ in found(TASK, running(9, "n00", since=1000), policy=policy).values()
    ]
    assert Cause.RANK in causes
    assert found(TASK, running(9, "n00", since=60), policy=policy)[840.0] == (Cause.PROTECTION, 9)


STATE = snap(
    node("a", cordoned=True, gpus=4, cpus=9), node("b", zone="B", gpus=8, cordoned=True, up=False),
    node("c", group="g", gpus=99),
    queued(1, 3, user="u"), queued(2, user="u", held=True, not_before=NOW + 9),
    quota("u", HIGH, 1), quota("u", HIGH, 2), quota("v", HIGH, 5), quota("u", HIGH, 7, "g"),
    share("u v", limit=1), share("w", limit=1),
)  # fmt: skip


def changed(remedy: Remedy, task: int = 1, policy: Policy = POLICY) -> Any:
    return apply_remedy(STATE, task, remedy, policy)


def test_more_quota_is_added_to_the_largest_row_or_to_the_default() -> None:
    rows = changed(Remedy(Change.QUOTA, rows=((HIGH, 2), (AUTO, 3)))).quotas
    assert rows == (
        quota("v", HIGH, 5), quota("u", HIGH, 7, "g"), quota("u", HIGH, 4), quota("u", AUTO, 3),
    )  # fmt: skip
    limited = Policy(default_quota=2)
    assert changed(Remedy(Change.QUOTA, rows=((LOW, 1),)), policy=limited).quotas[-1] == quota(
        "u", LOW, 3
    )
    told = [
        allowed_nodes(STATE.quotas, find_task(STATE, 1), level, limited)
        for level in (HIGH, LOW, AUTO)
    ]
    assert told == [2, 2, 0]
    assert allowed_nodes(STATE.quotas, find_task(STATE, 1), LOW, POLICY) == 0


def test_a_higher_limit_is_that_of_the_tasks_user_group() -> None:
    limits = {row.name: row.limit for row in changed(Remedy(Change.SHARE, count=2)).shares}
    assert limits == {"u v": 3, "w": 1}
    unlimited = snap(queued(1, user="u"), share("u"))
    assert apply_remedy(unlimited, 1, Remedy(Change.SHARE, count=2), POLICY) == unlimited


def test_a_change_of_one_task_changes_no_other_task() -> None:
    one, two = STATE.tasks
    fewer, level = (
        changed(remedy).tasks for remedy in (Remedy(Change.FEWER_NODES, count=2), Remedy(Change.LEVEL, level=HIGH))
    )  # fmt: skip
    assert (fewer[0].node_count, fewer[1]) == (2, two)
    assert (level[0].priority, level[1]) == (HIGH, two)
    first, second = changed(Remedy(Change.RESUME), task=2).tasks
    assert (first, second.held, second.not_before) == (one, False, 0.0)
    assert changed(Remedy(Change.TIME, at=NOW + 5)).now == NOW + 5


def test_nodes_are_uncordoned_or_added_like_the_largest_node() -> None:
    back = changed(Remedy(Change.UNCORDON, nodes=("a",))).nodes
    assert [node.cordoned for node in back] == [False, True, False]
    more = changed(Remedy(Change.MORE_NODES, count=2)).nodes[3:]
    assert [(n.name, n.gpus, n.cordoned, n.state, n.zone) for n in more] == [
        ("b~0", 8, False, NodeState.READY, "B"),
        ("b~1", 8, False, NodeState.READY, "B"),
    ]


@pytest.mark.parametrize(("zone", "names"), [("", ["a", "b"]), ("B", ["b"]), ("C", [])])
def test_candidates_are_the_nodes_of_group_and_zone(zone: str, names: list[str]) -> None:
    found: list[Node] = candidate_nodes(STATE, queued(1, zone=zone))
    assert [node.name for node in found] == names


def test_of_equally_many_gpus_more_cpus_then_more_memory_make_a_larger_node() -> None:
    small, more, most = (
        node("x", gpus=1, cpus=2),
        node("y", gpus=1, cpus=3),
        node("w", gpus=1, cpus=3, memory_bytes=1),
    )
    for one, other in ((small, more), (more, most)):
        new = apply_remedy(
            snap(other, one, queued(1)), 1, Remedy(Change.MORE_NODES, count=1), POLICY
        ).nodes[-1]
        assert new.name == f"{other.name}~0"


def test_a_remedy_has_only_the_fields_of_its_change() -> None:
    remedy = Remedy(Change.RESUME)
    assert (remedy.rows, remedy.count, remedy.level, remedy.at) == ((), 0, AUTO, 0.0)
    assert (remedy.cause, remedy.task, remedy.nodes, remedy.starts) == (Cause.RANK, 0, (), False)


def test_protection_is_preferred_to_rank_as_the_cause() -> None:
    policy = Policy(overhead_share=0.01, ranking=Ranking.ATTAINED)
    older = running(8, "n00", since=1000)
    at = NOW - 1000 + STARTS[bin_of(1000) + 1]
    assert found(TASK, older, policy=policy)[at - NOW] == (Cause.RANK, 8)
    both = found(TASK, older, running(9, "n01", run_started_at=at - 900), policy=policy)
    assert both[at - NOW] == (Cause.PROTECTION, 9)
