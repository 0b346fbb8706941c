"""Tests of the diagnosis of failed tasks, which the server, the command line and the app share."""

from __future__ import annotations

import pytest

from hai.client.tasks.diagnosis import CAUSES, diagnose, likely_cause
from hai.v1.task_pb2 import (
    RANK_STATE_FAILED,
    RANK_STATE_STOPPED,
    TASK_OUTCOME_FAILED,
    TASK_OUTCOME_STOPPED,
    Rank,
    Run,
    Task,
)


@pytest.mark.parametrize(
    ("code", "line", "key"),
    [
        pytest.param(1, "torch.OutOfMemoryError: CUDA out of memory.", "gpumem", id="cuda memory"),
        pytest.param(1, "Watchdog caught collective operation timeout", "nccl", id="nccl time-out"),
        pytest.param(137, "", "killed", id="killed"),
        pytest.param(1, "ModuleNotFoundError: No module named 'apex'", "module", id="module"),
        pytest.param(1, "OSError: [Errno 28] No space left on device", "disk", id="disk"),
        pytest.param(1, "OSError: [Errno 98] Address already in use", "port", id="port"),
        pytest.param(2, "can't open file 'x.py': [Errno 2] No such file or directory", "file", id="file"),
        pytest.param(1, "bye", "", id="nothing is known"),
    ],
)  # fmt: skip
def test_likely_causes(code: int, line: str, key: str) -> None:
    assert likely_cause(code, ["a line before", line]) == key
    assert not key or CAUSES[key]


def failed(*ranks: Rank) -> Task:
    return Task(
        id=7,
        outcome=TASK_OUTCOME_FAILED,
        reason="rank 1 exited with 1",
        run=Run(number=1, ranks=ranks),
    )


def test_the_first_rank_to_fail_is_named_with_cause_and_last_lines() -> None:
    first = Rank(index=1, node="n1", exit_code=1, state=RANK_STATE_FAILED)
    first.last_lines = "loading\nModuleNotFoundError: No module named 'apex'\n"
    ended = Rank(index=0, node="n0", exit_code=143, state=RANK_STATE_STOPPED)
    found = diagnose(failed(ended, first))
    assert found is not None
    assert found.found == (
        "rank 1 exited with 1",
        "rank 1 on n1 was the first to fail: exit code 1",
        "1 of 2 ranks failed",
        "last lines of rank 1:",
        "| loading",
        "| ModuleNotFoundError: No module named 'apex'",
        f"likely cause: {CAUSES['module']}",
    )
    assert found.to_try[0] == "read its log: hai logs 7 -r 1"


def test_exit_codes_are_explained() -> None:
    found = diagnose(failed(Rank(node="n0", exit_code=137, exit_meaning="killed by SIGKILL")))
    assert found is not None
    assert found.found[1].endswith("exit code 137 (killed by SIGKILL)")


def test_a_failure_before_the_programs_ran_has_the_reason_of_the_task() -> None:
    found = diagnose(failed())
    assert found is not None
    assert found.found == ("rank 1 exited with 1",)


def test_only_failed_tasks_are_diagnosed() -> None:
    assert diagnose(Task(id=7, outcome=TASK_OUTCOME_STOPPED)) is None
    assert diagnose(Task(id=7)) is None
