"""Small runs move so that a task fits that needs whole nodes."""

from __future__ import annotations

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.scheduling.plan import Suspend
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.testing import NOW, nodes, queued, running, snap

LONG = 50_000.0  # more than any slice
OLDER = Policy(ranking=Ranking.SUBMITTED)  # the task that was submitted last outranks no run


def part(task: int, on: str, gpus: int = 2, since: float = LONG) -> SchedTask:
    """Return a run that uses some of the eight GPUs of a node."""
    return running(task, on, gpu=gpus, since=since, created_at=NOW - LONG)


def whole_nodes(task: int, on: str) -> SchedTask:
    """Return a run that uses all of its nodes."""
    return running(task, on, since=LONG, created_at=NOW - LONG)


CASES = [
    pytest.param([part(1, "n00"), part(2, "n01")], 1, [1], id="two pieces become one"),
    pytest.param([part(1, "n00", 4), part(2, "n00"), part(3, "n01")], 1, [3], id="the fewest"),
    pytest.param([part(1, "n00", 6), part(2, "n01", 6)], 1, [], id="they fit nowhere else"),
    pytest.param([part(1, "n00", 2, 60), part(2, "n01")], 1, [2], id="only who had its slice"),
    pytest.param([whole_nodes(1, "n00"), part(2, "n01")], 1, [], id="a whole node is no piece"),
    pytest.param([whole_nodes(1, "n00")], 2, [], id="whole runs fill no pieces"),
]


@pytest.mark.parametrize(("runs", "count", "moves"), CASES)
def test_runs_to_move(runs: list[SchedTask], count: int, moves: list[int]) -> None:
    packed = Group("default", packed=True)
    given = snap(runs, queued(9, count, created_at=NOW), nodes(2, gpus=8), packed)
    plan = schedule(given, OLDER)
    assert [d.task for d in plan.decisions if isinstance(d, Suspend)] == moves


@pytest.mark.parametrize(("before", "moves"), [(63, [99]), (64, [])])
def test_the_number_of_examined_nodes_is_limited(before: int, moves: list[int]) -> None:
    """The emptiest ones first; of these no run may move."""
    fixed = [part(100 + i, f"n{i:02}", 1, 60) for i in range(before)]
    runs = [*fixed, part(99, f"n{before:02}")]
    packed = Group("default", packed=True)
    given = snap(runs, queued(1, created_at=NOW), nodes(len(runs), gpus=8), packed)
    plan = schedule(given, OLDER)
    assert [d.task for d in plan.decisions if isinstance(d, Suspend)] == moves
