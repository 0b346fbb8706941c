"""Loops and stalls that users of other schedulers have reported. In each small cluster here, they must not occur.

The tests repeat the pattern of each report: two workloads that evict each other (Kueue #13662, #3779, #7101), one that
is evicted over a hundred times (Kueue #6861), shares that are reclaimed in turn (Volcano #561), an infeasible task that
is retried for ever (KAI #848), rejected bindings that block other tasks (KAI #2074).
"""

from __future__ import annotations

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Start, Suspend, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler import Policy, SchedulerCache, schedule
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.testing import NOW, node, nodes, queued, quota, running, snap
from hai_backend.sim.replay.job import Job
from hai_backend.sim.replay.replay import Cluster, replay

LOW, NORMAL, ABOVE, HIGH = (
    Priority.LOW, Priority.NORMAL, Priority.ABOVE_NORMAL, Priority.HIGH,
)  # fmt: skip
HOUR = 3600.0
POLICIES = [
    pytest.param(Policy(), id="learned"),
    pytest.param(Policy(ranking=Ranking.SUBMITTED), id="submitted"),
    pytest.param(Policy(time_slices=False), id="without slices"),
]


def job(task: int, submit: float, seconds: float, width: int, level: Priority = NORMAL) -> Job:
    return Job(task, "train", f"u{task}", submit, seconds, 8 * width, width, level)


def suspensions(jobs: list[Job], width: int, policy: Policy) -> dict[int, int]:
    outcome = replay(jobs, Cluster(width), policy)
    assert len(outcome.records) == len(jobs), "all end"
    return {record.job.id: record.suspensions for record in outcome.records}


@pytest.mark.parametrize("policy", POLICIES)
def test_two_tasks_on_the_whole_cluster_do_not_alternate_too_often(policy: Policy) -> None:
    """Kueue #13662, #7101: with equal claims each is the other's victim at once."""
    found = suspensions([job(1, 0, 8 * HOUR, 4), job(2, 1, 8 * HOUR, 4)], 4, policy)
    slices = 16 * HOUR / 6500
    assert sum(found.values()) <= slices + 1  # the first slice may end at the minimum


@pytest.mark.parametrize("policy", POLICIES)
def test_a_victim_does_not_suspend_the_task_that_it_left_for(policy: Policy) -> None:
    """Kueue #3779: a victim is requeued, finds room by evicting a third one, and so on around."""
    ring = [job(i, i, 6 * HOUR, 2) for i in range(1, 5)]
    found = suspensions(ring, 3, policy)
    assert max(found.values()) <= 4 * 6 * HOUR / 6500 * 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_of_higher_tasks_does_not_suspend_one_task_a_hundred_times(policy: Policy) -> None:
    """Kueue #6861. The levels are not urgent: after each suspension the run is protected for longer."""
    stream = [job(i, 1800.0 * i, 60, 1, ABOVE) for i in range(2, 200)]
    found = suspensions([job(1, 0, 40 * HOUR, 1, LOW), *stream], 1, policy)
    days = 200 * 1800 / 86_400 + 1
    assert found[1] <= 24 * days
    assert found[1] < 100


def test_urgent_tasks_may_suspend_as_often_as_they_come() -> None:
    """The protection after suspensions does not apply to urgent tasks."""
    marks = tuple(Suspension(NOW - 60.0 * i, 99, higher=True) for i in range(100, 0, -1))
    run = running(9, "n00", LOW, suspensions=marks)
    decisions = schedule(snap(nodes(1), run, queued(1, 1, HIGH))).decisions
    assert [d.task for d in decisions if isinstance(d, Suspend)] == [9]
    decisions = schedule(snap(nodes(1), run, queued(1, 1, ABOVE))).decisions
    assert not [d for d in decisions if isinstance(d, Suspend)]


def test_released_quota_does_not_make_tasks_alternate() -> None:
    """Volcano #561: A was evicted because B was below its share, then B because A was. Here neither is."""
    parts = [nodes(2), quota("a", NORMAL, 1), quota("b", NORMAL, 1)]
    runs = [running(8, "n00", user="a", since=9e4), running(9, "n01", user="b", since=9e4)]
    plan = schedule(snap(*parts, *runs, queued(1, user="a"), queued(2, user="b")))
    assert not [d for d in plan.decisions if isinstance(d, Suspend)]


def test_a_demoted_run_and_its_victim_do_not_suspend_each_other() -> None:
    """A level that changes with time can cause a loop: both tasks are ABOVE_NORMAL and are demoted."""
    found = suspensions([job(1, 0, 6 * HOUR, 1, ABOVE), job(2, 5, 6 * HOUR, 1, ABOVE)], 1, Policy())
    assert max(found.values()) <= 12 * HOUR / 1800


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(queued(1, 99, HIGH), id="too large"),
        pytest.param(queued(1, 1, HIGH, zone="nowhere"), id="no such zone"),
        pytest.param(queued(1, 2, HIGH, assigned_nodes=("n00", "x")), id="no such node"),
        pytest.param(queued(1, 2, HIGH, user="broke"), id="no quota"),
        pytest.param(
            queued(1, 3, HIGH, assigned_nodes=("n00", "n01", "down")), id="a node is down"
        ),
    ],
)
def test_an_infeasible_task_is_not_tried_and_suspends_no_run(bad: SchedTask) -> None:
    """KAI #848: asked again and again, the answer is the same, no run leaves, and no alarm is set."""
    parts = [nodes(2), node("down", up=False), quota("broke", HIGH, 1), running(9, "n00", LOW)]
    cache = SchedulerCache.from_snapshot(snap(*parts, bad, queued(2, 1, LOW)), Policy())
    first = cache.decide(NOW)
    assert [(type(d), d.task) for d in first.decisions] == [(Start, 2)]
    assert cache.decide(NOW + 60).decisions == first.decisions
    wait = cache.wait(1)
    assert wait is not None
    assert wait.why not in (WaitReason.WAITING_FOR_PREEMPTED, WaitReason.NOT_ENOUGH_NODES)


def test_rejected_decisions_are_made_again() -> None:
    """KAI #2074: a start that is not carried out is proposed again, and other tasks are not affected."""
    cache = SchedulerCache.from_snapshot(snap(nodes(2), queued(1), queued(2)), Policy())
    first = cache.decide(NOW)
    assert {d.task for d in first.decisions} == {1, 2}
    cache.update_tasks([running(2, "n01", since=0)], (), NOW)
    again = cache.decide(NOW + 1)
    assert [(type(d), d.task) for d in again.decisions] == [(Start, 1)]
    assert [d.nodes for d in again.decisions if isinstance(d, Start)] == [("n00",)]


def test_preemption_is_never_in_vain() -> None:
    """Volcano #3332 and others: victims leave, but the new task does not fit."""
    runs = [running(7, "n00", LOW), running(8, "n01", LOW), running(9, "n02", HIGH)]
    plan = schedule(snap(nodes(3), *runs, queued(1, 3, HIGH)))
    assert not [d for d in plan.decisions if isinstance(d, Suspend)]
