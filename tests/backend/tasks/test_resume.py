"""What a server that was started again does about ranks of which nothing is to be seen."""

from __future__ import annotations

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.tasks import relaunch
from hai_backend.tasks.instructions import Launch
from hai_backend.tasks.moves import may_run
from hai_backend.testing import a_spec

R, S = RunState, RankState
BEFORE_ITS_END = [
    pytest.param(R.CREATED, Rank(0, "n0"), False, id="its launch was interrupted"),
    pytest.param(R.BUILDING, Rank(0, "n0", S.BUILDING), True, id="made, and may attach any moment"),
    pytest.param(R.TERMINATING, Rank(0, "n0", S.BUILDING), False, id="it would be told to end"),
    pytest.param(R.CREATED, Rank(0, "n0", S.RUNNING), True, id="attached before the others"),
    pytest.param(R.RUNNING, Rank(0, "n0", S.RUNNING), True, id="it runs"),
    pytest.param(R.TERMINATING, Rank(0, "n0", S.RUNNING), True, id="it may not have heard the end"),
    pytest.param(
        *(R.RUNNING, Rank(0, "n0", S.FAILED_TERMINATING), True),
        id="its node was lost",
    ),
    pytest.param(
        *(R.RUNNING, Rank(0, "n0", S.SUCCEEDED_TERMINATING, exit_code=0), False),
        id="its agent has said that nothing of it runs any more",
    ),
    pytest.param(R.RUNNING, Rank(0, "n0", S.FAILED), False, id="it is gone"),
]


@pytest.mark.parametrize(("state", "rank", "expected"), BEFORE_ITS_END)
def test_a_program_may_run_from_the_moment_its_agent_may_be_told_to_go(
    state: RunState, rank: Rank, expected: bool
) -> None:
    assert may_run(Run(1, state, (rank,), 0.0, Priority.LOW), rank) is expected


LAUNCHES = [
    pytest.param(R.CREATED, (S.CREATED, S.CREATED), Launch(1, (0, 1)), id="nothing was made"),
    pytest.param(R.CREATED, (S.RUNNING, S.CREATED), Launch(1, (1,)), id="one has attached"),
    pytest.param(R.BUILDING, (S.RUNNING, S.BUILDING), None, id="all were made: none is made twice"),
    pytest.param(R.RUNNING, (S.RUNNING, S.RUNNING), None, id="all run"),
]


@pytest.mark.parametrize(("state", "states", "expected"), LAUNCHES)
def test_only_ranks_whose_launch_was_interrupted_are_made_again(
    state: RunState, states: tuple[RankState, ...], expected: Launch | None
) -> None:
    ranks = tuple(Rank(i, f"n{i}", s) for i, s in enumerate(states))
    run = Run(1, state, ranks, 0.0, Priority.LOW)
    spec = a_spec("one", nodes=2)
    task = Task(1, "ada", spec, TaskState.RUNNING, Priority.LOW, 0.0, run=run)
    assert relaunch(task) == expected
