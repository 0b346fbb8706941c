"""The sentences that explain why a task waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.api.scheduling.explain_response import (
    Facts,
    describe_foreign_pods,
    describe_protection,
    describe_suspensions,
    explain_response,
)
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.spec import ProgramSpec, TaskSpec
from hai_backend.domain.task import (
    Outcome,
    Rank,
    RankState,
    Run,
    RunState,
    Task,
    TaskEvent,
    TaskState,
)
from hai_backend.scheduler.explain.blockers import NodeNumbers


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        pytest.param(NodeNumbers(takeable=1), [], id="nobody"),
        pytest.param(
            NodeNumbers(protected=2, protected_until=60.0, protected_runs=(9, 8)),
            ["2 nodes held by runs that it outranks, but that are protected: task 9, 8; "
             "the first of them until 1970-01-01 00:01:00 UTC"],
            id="until when",
        ),
        pytest.param(
            NodeNumbers(protected=1, protected_until=60.0, protected_runs=(9,), protected_why="it worked for nothing"),
            ["1 node held by runs that it outranks, but that are protected: task 9; "
             "the first of them until 1970-01-01 00:01:00 UTC: it worked for nothing"],
            id="and why",
        ),
    ],
)  # fmt: skip
def test_protected_runs_are_named_with_the_end_of_their_protection(
    numbers: NodeNumbers, said: list[str]
) -> None:
    assert [*describe_protection(numbers)] == said


def test_explanation_of_a_failed_task_is_its_diagnosis() -> None:
    lines = "ModuleNotFoundError: No module named 'apex'\n"
    rank = Rank(0, "n1", RankState.FAILED, exit_code=1, last_lines=lines)
    run = Run(1, RunState.ENDED, (rank,), 0.0, Priority.LOW)
    spec = TaskSpec("t", ProgramSpec("x.py"))
    task = Task(7, "ada", spec, TaskState.FINISHED, Priority.LOW, 0.0, run=run)
    task = replace(task, outcome=Outcome.FAILED, reason="rank 0 exited with 1")
    said = explain_response(Facts(task, None, {}, {}, (), (), 0.0, lambda other: True))
    assert said.constraints[0] == "rank 0 exited with 1"
    assert "rank 0 on n1 was the first to fail: exit code 1" in said.constraints
    assert said.constraints[-1].startswith("likely cause: a Python package is missing")
    assert "submit it again: hai describe 7 | hai run -" in said.suggestions


def test_who_waits_for_a_save_sees_its_progress() -> None:
    spec, gib = TaskSpec("t", ProgramSpec("x.py")), 1 << 30
    waiting = Task(7, "ada", spec, TaskState.WAITING_INIT, Priority.HIGH, 0.0)
    rank = Rank(0, "n1", RankState.RUNNING, saved_bytes=21 * gib // 10, state_bytes=36 * gib // 10)
    asked = {"asked_at": 1.0, "acknowledged_at": 2.0}
    run = Run(1, RunState.SUSPENDING, (rank,), 0.0, Priority.LOW, suspended_for=7, **asked)
    saves = Task(1, "bob", spec, TaskState.RUNNING, Priority.LOW, 0.0, run=run)
    idle = replace(saves, id=2, run=replace(run, ranks=(Rank(0, "n2", RankState.RUNNING),)))
    for_other = replace(saves, id=3, run=replace(run, suspended_for=8))
    left = replace(saves, id=4, state=TaskState.SUSPENDED)
    others = {task.id: task for task in (left, for_other, idle, saves)}
    wait = Wait(7, WaitReason.WAITING_FOR_PREEMPTED, "Is promised 1 node.", 1, Priority.HIGH, ())
    said = explain_response(Facts(waiting, wait, others, {}, (), (), 6.2, lambda other: True))
    saving = [line for line in said.constraints if "saving" in line]
    assert saving == ["task 1 is saving: 2.1 of 3.6 GiB, about 3 s left"]
    own = explain_response(Facts(saves, None, {}, {}, (), (), 6.2, lambda other: True))
    assert [*own.constraints] == ["task 1 does not wait: it is running", *saving]


@pytest.mark.parametrize(("suspended", "said"), [(1, False), (2, True)])
def test_the_owner_sees_that_the_next_run_is_protected(suspended: int, said: bool) -> None:
    spec, progress = TaskSpec("t", ProgramSpec("x.py")), Progress(unsaved_suspensions=suspended)
    task = Task(7, "ada", spec, TaskState.SUSPENDED, Priority.LOW, 0.0, progress=progress)
    wait = Wait(7, WaitReason.NOT_ENOUGH_NODES, "Needs 1 node.", 1, Priority.LOW, ())
    answer = explain_response(Facts(task, wait, {}, {}, (), (), 0.0, lambda other: True))
    text = "its last 2 runs were suspended before they saved"
    assert any(line.startswith(text) for line in answer.constraints) == said


def test_the_history_tells_who_asked_and_what_was_lost() -> None:
    events = [
        TaskEvent(60.0, "scheduler", "SuspendAsked", "task 9 needs the nodes", 1),
        TaskEvent(61.0, "agent", "ProgramExited", "exit code 143", 1),
        TaskEvent(62.0, "server", "SuspendForced", "Run 1 was ended while it saved.", 1),
    ]
    assert describe_suspensions(enumerate(events)) == (
        "1970-01-01 00:01:00 UTC run 1: task 9 needs the nodes (asked by scheduler)",
        "1970-01-01 00:01:02 UTC run 1: Run 1 was ended while it saved.",
    )


def test_pods_of_other_systems_are_named_for_usable_nodes() -> None:
    told = "other pods hold 3 of 8 gpus"
    nodes = [
        Node("n2", foreign=told),
        Node("n1"),
        Node("n3", foreign=told, cordoned=True),  # named among the unusable nodes instead
    ]
    assert [*describe_foreign_pods(nodes)] == [f"node n2: {told}"]
    many = [Node(f"n{i}", foreign=told) for i in range(7)]
    assert [*describe_foreign_pods(many)][5:] == [
        "and of 2 more nodes: `hai nodes` says how much",
    ]
