"""The decisions of a restarted server about ranks that the launcher does not see."""

from __future__ import annotations

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.lifecycle import plan_recovery
from hai_backend.lifecycle.instructions import Launch
from hai_backend.lifecycle.recovery import Recovery
from hai_backend.lifecycle.rules.transition import may_run
from tests.support.builders import a_spec

R, S = RunState, RankState
RANKS = [
    pytest.param(Rank(0, "n0"), False, id="its launch was interrupted"),
    pytest.param(Rank(0, "n0", S.BUILDING), False, id="made, and never attached"),
    pytest.param(Rank(0, "n0", S.RUNNING), True, id="attached"),
    pytest.param(Rank(0, "n0", S.FAILED_TERMINATING), True, id="its node was lost"),
    pytest.param(
        Rank(0, "n0", S.SUCCEEDED_TERMINATING, exit_code=0), False, id="nothing of it runs any more"
    ),
    pytest.param(Rank(0, "n0", S.FAILED), False, id="gone"),
]


@pytest.mark.parametrize(("rank", "expected"), RANKS)
def test_a_program_may_run_once_its_agent_has_attached(rank: Rank, expected: bool) -> None:
    assert may_run(rank) is expected


def a_task(state: RunState, *states: RankState) -> Task:
    ranks = tuple(Rank(i, f"n{i}", s) for i, s in enumerate(states))
    run = Run(1, state, ranks, 0.0, Priority.LOW)
    spec = a_spec("one", nodes=len(states))
    return Task(1, "ada", spec, TaskState.RUNNING, Priority.LOW, 0.0, run=run)


NEW, MADE = (S.CREATED, S.CREATED), (S.BUILDING, S.BUILDING)
LEFT = [  # run, ranks, missing ranks, whether their launch had begun
    pytest.param(R.CREATED, NEW, {0, 1}, False, Recovery(Launch(1, (0, 1))), id="never begun"),
    pytest.param(R.CREATED, NEW, {0, 1}, True, Recovery(gone=(0, 1)), id="may have been made"),
    pytest.param(R.CREATED, NEW, {1}, True, Recovery(gone=(1,)), id="one may have been made"),
    pytest.param(R.CREATED, NEW, set(), True, Recovery(Launch(1, (0, 1))), id="all are there"),
    pytest.param(
        *(R.CREATED, (S.RUNNING, S.CREATED), {0, 1}, True, Recovery(gone=(1,), unknown=(0,))),
        id="one had attached",
    ),
    pytest.param(
        *(
            R.CREATED,
            (S.RUNNING, S.CREATED),
            {0, 1},
            False,
            Recovery(Launch(1, (1,)), unknown=(0,)),
        ),
        id="one had attached, and somebody deleted the owner",
    ),
    pytest.param(R.BUILDING, MADE, {0}, True, Recovery(gone=(0,)), id="made, and never attached"),
    pytest.param(R.BUILDING, MADE, set(), True, Recovery(), id="made, and there"),
    pytest.param(
        *(R.BUILDING, (S.RUNNING, S.BUILDING), {0, 1}, True, Recovery(gone=(1,), unknown=(0,))),
        id="one waits for the other",
    ),
    pytest.param(R.RUNNING, (S.RUNNING,), {0}, True, Recovery(unknown=(0,)), id="it may run"),
    pytest.param(R.SUSPENDING, (S.RUNNING,), {0}, True, Recovery(unknown=(0,)), id="it may save"),
    pytest.param(
        *(
            R.RUNNING,
            (S.FAILED_TERMINATING, S.RUNNING),
            {0, 1},
            True,
            Recovery(kill=(0,), unknown=(1,)),
        ),
        id="one was given up",
    ),
    pytest.param(
        *(R.TERMINATING, (S.RUNNING,), {0}, True, Recovery(kill=(0,))),
        id="it ran, and was being ended",
    ),
    pytest.param(R.TERMINATING, MADE, {0}, True, Recovery(kill=(0,)), id="it was being ended"),
]


@pytest.mark.parametrize(("state", "states", "missing", "begun", "expected"), LEFT)
def test_a_rank_that_may_exist_is_not_launched_again(
    state: RunState,
    states: tuple[RankState, ...],
    missing: set[int],
    begun: bool,
    expected: Recovery,
) -> None:
    assert plan_recovery(a_task(state, *states), frozenset(missing), launch_begun=begun) == expected


@pytest.mark.parametrize("state", [R.RUNNING, R.SUSPENDING, R.TERMINATING])
def test_a_launcher_that_sees_all_ranks_leaves_none_unknown(state: RunState) -> None:
    left = plan_recovery(a_task(state, S.RUNNING), frozenset({0}), launch_begun=True, certain=True)
    assert left == Recovery(kill=(0,))
