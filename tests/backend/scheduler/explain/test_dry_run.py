"""A dry run says what the live loop does when the task is submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.plan import Start, Suspend, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.explain.blockers import QuotaUse
from hai_backend.scheduler.explain.dry_run import DryRun, Outcome, dry_run
from hai_backend.scheduler.testing import NOW, leaving, nodes, queued, quota, running, snap

LOW, NORMAL, HIGH, AUTO = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.AUTO
POLICY = Policy()


@st.composite
def newcomers(draw: st.DrawFn) -> SchedTask:
    """What somebody may submit now."""
    return queued(
        500,
        draw(st.integers(1, 4)),
        draw(st.sampled_from([*LEVELS, AUTO])),
        user=draw(st.sampled_from("uvwx")),
        zone=draw(st.sampled_from(["", "", "A"])),
        gpu=draw(st.sampled_from([0, 0, 1, 2, 3])),
        created_at=NOW,
        group=draw(st.sampled_from(["default"] * 9 + ["nowhere"])),
    )


def check_truth(snapshot: Snapshot, task: SchedTask) -> DryRun:
    """Compare with a cache that has made a pass before the task is submitted."""
    live = SchedulerCache.from_snapshot(snapshot, POLICY)
    live.decide(NOW)
    said = dry_run(live.snapshot(), task, POLICY)
    live.update_tasks([task], (), NOW)
    decisions = live.decide(NOW).decisions
    starts = [d for d in decisions if isinstance(d, Start) and d.task == task.id]
    asked = {d.task for d in decisions if isinstance(d, Suspend) and d.for_task == task.id}
    waits = [wait for wait in live.waits() if wait.task == task.id]
    assert [said.wait] * (said.wait is not None) == waits
    assert (said.outcome is Outcome.STARTS) == bool(starts)
    assert {victim.task for victim in said.victims if not victim.asked} == asked
    if starts:
        assert (said.nodes, said.level) == (starts[0].nodes, starts[0].priority)
    promised = any(wait.why is WaitReason.WAITING_FOR_PREEMPTED for wait in waits)
    assert (said.outcome is Outcome.PROMISED) == promised
    return said


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_dry_run_predicts_the_next_pass(
    snapshots: Callable[..., st.SearchStrategy[Snapshot]], data: st.DataObject
) -> None:
    check_truth(data.draw(snapshots(most=4)), data.draw(newcomers()))


def test_starts_use_quota() -> None:
    rows = [quota("u1", HIGH, 3), quota("u1", AUTO, 9)]
    parts = [running(8, "n00", HIGH, user="u1"), running(9, "n01", LOW, user="u1")]
    said = dry_run(snap(nodes(4), *rows, *parts), queued(500, 2, HIGH, user="u1"), POLICY)
    assert said == DryRun(
        Outcome.STARTS, HIGH, ("n02", "n03"), (), (QuotaUse(HIGH, 3, 1, 3), QuotaUse(AUTO, 9, 2, 4))
    )


def test_a_dry_run_lists_victims_and_their_losses() -> None:
    runs = [running(8, "n00", LOW, since=100), leaving(9, "n01", since=50)]
    said = dry_run(snap(nodes(2), *runs), queued(500, 2, HIGH, created_at=NOW), POLICY)
    assert (said.outcome, said.nodes) == (Outcome.PROMISED, ("n00", "n01"))
    assert [(v.task, v.nodes, v.lost, v.cost, v.asked) for v in said.victims] == [
        (8, ("n00",), 100.0, 165.0, False),
        (9, ("n01",), 50.0, 115.0, True),
    ]


@pytest.mark.parametrize(
    ("snapshot", "task", "why", "outcome"),
    [
        pytest.param(snap(nodes(1), running(9, "n00", HIGH), queued(8)), queued(500),
                     WaitReason.NOT_ENOUGH_NODES, Outcome.WAITS, id="waits"),
        pytest.param(snap(nodes(1)), queued(500, 2), WaitReason.GROUP_TOO_SMALL, Outcome.NEVER, id="too large"),
        pytest.param(snap(nodes(1)), queued(500, -2), WaitReason.INVALID, Outcome.NEVER, id="a bad row"),
        pytest.param(snap(nodes(1), quota("u500", NORMAL, 0)), queued(500),
                     WaitReason.QUOTA_EXCEEDED, Outcome.NEVER, id="no quota"),
    ],
)  # fmt: skip
def test_every_task_that_does_not_start_has_a_reason(
    snapshot: Snapshot, task: SchedTask, why: WaitReason, outcome: Outcome
) -> None:
    said = dry_run(snapshot, task, POLICY)
    assert said.wait is not None
    assert (said.wait.why, said.outcome) == (why, outcome)


def test_nodes_that_were_moved_connect_groups() -> None:
    """A pass over a group may suspend a run of another group on a node that was moved."""
    moved = [replace(node, group="other") for node in nodes(1)]
    parts = [running(9, "n00", LOW), queued(1, 1, HIGH, group="other")]
    check_truth(snap(moved, *parts), queued(500, 1, HIGH, group="other", created_at=NOW))


def test_a_victim_may_be_of_another_group() -> None:
    moved = [replace(node, group="other") for node in nodes(1)]
    newcomer = queued(500, 1, HIGH, group="other", created_at=NOW)
    said = check_truth(snap(moved, leaving(9, "n00", LOW)), newcomer)
    assert [(victim.task, victim.asked) for victim in said.victims] == [(9, True)]
