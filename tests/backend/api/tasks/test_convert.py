"""Ranks in messages: exit codes, silence and last lines."""

from __future__ import annotations

import pytest

from hai_backend.api.request import limits
from hai_backend.api.tasks.convert import run_to_proto, task_to_proto
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from tests.support.builders import a_spec

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
def test_exit_code_of_a_rank(rank: Rank, code: int | None, meaning: str) -> None:
    run = Run(1, RunState.ENDED, (rank,), 0.0, Priority.NORMAL)
    task = Task(1, "ada", a_spec(), TaskState.SUSPENDED, Priority.NORMAL, 0.0, run=run)
    told = task_to_proto(task).run.ranks[0]
    assert told.HasField("exit_code") is (code is not None)
    assert (told.exit_code, told.exit_meaning) == (code or 0, meaning)


def test_rank_has_the_time_since_its_agent_is_silent() -> None:
    silent = Rank(0, "n", RankState.RUNNING, started_at=1.0, silent_since=7.5)
    run = Run(1, RunState.RUNNING, (silent, Rank(1, "m")), 0.0, Priority.NORMAL)
    first, second = run_to_proto(run).ranks
    assert first.silent_since_time.ToMilliseconds() == 7500
    assert not second.HasField("silent_since_time")


def test_last_lines_of_the_first_failed_ranks_are_kept() -> None:
    """A message with 10 000 tracebacks would be too large for clients, and would end their watches."""
    said = "\u4e2d" * limits.REPORT_CHARS
    ranks = tuple(
        Rank(
            i,
            f"n{i}",
            GONE,
            exit_code=1,
            started_at=1.0,
            ended_at=2.0 + (-i) % 1000,
            last_lines=said,
        )
        for i in range(10_000)
    )
    told = run_to_proto(Run(1, RunState.ENDED, ranks, 0.0, Priority.NORMAL))
    assert told.ByteSize() < limits.PAGE_BYTES
    heard = [rank.index for rank in told.ranks if rank.last_lines]
    assert heard == sorted([*range(0, 10_000, 1000), *range(999, 6000, 1000)])
