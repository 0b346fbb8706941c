"""What is told of a rank's end."""

from __future__ import annotations

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.services.convert_task import task_to_proto
from hai_backend.testing import a_spec

GONE = RankState.STOPPED


@pytest.mark.parametrize(
    ("rank", "code", "meaning"),
    [
        pytest.param(Rank(0, "n"), None, "", id="has not begun"),
        pytest.param(Rank(0, "n", GONE, exit_code=143), None, "never started", id="taken away"),
        pytest.param(
            *(Rank(0, "n", GONE, exit_code=143, started_at=1.0), 143, "ended by SIGTERM"),
            id="ended",
        ),
        pytest.param(
            *(Rank(0, "n", GONE, exit_code=127), 127, "exit code 127: the program was not found"),
            id="could not begin",
        ),
        pytest.param(Rank(0, "n", GONE, exit_code=0, started_at=1.0), 0, "succeeded", id="done"),
    ],
)
def test_the_exit_code_of_a_rank(rank: Rank, code: int | None, meaning: str) -> None:
    run = Run(1, RunState.ENDED, (rank,), 0.0, Priority.NORMAL)
    task = Task(1, "ada", a_spec(), TaskState.SUSPENDED, Priority.NORMAL, 0.0, run=run)
    told = task_to_proto(task).run.ranks[0]
    assert told.HasField("exit_code") is (code is not None)
    assert (told.exit_code, told.exit_meaning) == (code or 0, meaning)
