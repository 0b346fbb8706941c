"""The time to save is extended while bytes are saved, up to a limit, and never shortened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.progress import Progress
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Run, RunState, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import instructions_on_attach, step
from hai_backend.lifecycle.instructions import SuspendPrograms
from hai_backend.lifecycle.limits import DEFAULTS, max_deadline
from tests.backend.lifecycle.test_state_machine import (
    ACK,
    NOW,
    STOP,
    SUSPEND,
    YIELD,
    exited,
    running,
)

ACK_AT, STEP = NOW + 1, 1 << 20


def saved(count: int, of: int = 100, rank: int = 0) -> ev.SaveProgressed:
    return ev.SaveProgressed(1, rank, count * STEP, of * STEP)


def run_of(task: Task) -> Run:
    assert task.run is not None
    return task.run


def leaving(*reports: tuple[float, ev.Event], ask: ev.Event = SUSPEND, **options: Any) -> Task:
    """Return a task that was asked to leave at NOW and acknowledged a second later, after reports."""
    task = step(running(**options), ask, NOW).task
    for seconds, event in ((1.0, ACK), *reports):
        task = step(task, event, NOW + seconds).task
    return task


DEADLINES = [
    pytest.param({}, [], 6.0, id="without a report: the declared time"),
    pytest.param({}, [(2.0, saved(10))], 7.0, id="extended by the time of a stall"),
    pytest.param({}, [(2.0, saved(1)), (5.5, saved(2))], 10.5, id="extended again"),
    pytest.param({}, [(2.0, saved(1)), (5.5, saved(1))], 7.0, id="a repeated report is no saving"),
    pytest.param({}, [(2.0, saved(9)), (3.0, saved(1))], 8.0, id="the next part of the state"),
    pytest.param({}, [(2.0, saved(9)), (3.0, saved(0, 0))], 7.0, id="the end of a save"),
    pytest.param({}, [(2.0, saved(1)), (3.0, saved(1, rank=1))], 8.0, id="any rank that saves"),
    pytest.param({"save_within": 60}, [(2.0, saved(1))], 62.0, id="a long declared time"),
    pytest.param({"save_within": 60}, [(0.5, saved(1))], 61.0, id="not shortened"),
    pytest.param({}, [(119.0, saved(1))], 121.0, id="until the platform's limit"),
    pytest.param({"save_within": 200}, [(9.0, saved(1))], 201.0, id="or the declared time"),
]


@pytest.mark.parametrize("ask", [SUSPEND, STOP], ids=["suspend", "stop"])
@pytest.mark.parametrize(("options", "reports", "seconds"), DEADLINES)
def test_the_time_to_save_follows_the_saved_bytes(
    options: dict[str, Any], reports: list[Any], seconds: float, ask: ev.Event
) -> None:
    assert run_of(leaving(*reports, ask=ask, **options)).deadline == NOW + seconds


def test_a_program_that_already_saves_when_it_is_asked_may_finish_before_it_acknowledges() -> None:
    task = step(running(), SUSPEND, NOW).task
    for second in range(1, 9):
        task = step(task, saved(second), NOW + second).task
    assert run_of(task).deadline == NOW + 13
    task = step(task, ACK, NOW + 9).task
    assert run_of(task).deadline == NOW + 14  # its whole time to save


def test_an_acknowledgement_in_the_middle_of_a_save_takes_no_time_from_it() -> None:
    task = step(running(save_within=0.5), SUSPEND, NOW).task
    task = step(task, saved(1), NOW + 1).task
    assert run_of(task).deadline == NOW + 6
    assert run_of(step(task, ACK, NOW + 1.5).task).deadline == NOW + 6.5
    over = step(task, saved(0, 0), NOW + 1.2).task
    assert run_of(step(over, ACK, NOW + 1.5).task).deadline == NOW + 2


def test_progress_is_no_line_of_the_timeline_and_asks_nobody_for_anything() -> None:
    done = step(leaving(), saved(1), NOW + 2)
    assert (done.events, done.instructions) == ((), ())
    assert done.task.revision == leaving().revision + 1
    again = step(done.task, saved(1), NOW + 3)
    assert again.task is done.task


@pytest.mark.parametrize(
    ("report", "kept"),
    [
        pytest.param((-5, -5), (0, 0), id="negative"),
        pytest.param((9, 4), (4, 4), id="more than there is"),
        pytest.param((2**63 - 1, 2**63 - 1), (1 << 62, 1 << 62), id="too large"),
    ],
)
def test_wrong_numbers_are_bounded(report: tuple[int, int], kept: tuple[int, int]) -> None:
    run = run_of(step(leaving(), ev.SaveProgressed(1, 0, *report), NOW + 2).task)
    assert (run.saved_bytes, run.state_bytes) == kept


def test_the_progress_of_a_run_is_the_sum_over_its_ranks() -> None:
    run = run_of(leaving((2.0, saved(3, 10)), (2.0, saved(4, 20, rank=1))))
    assert (run.saved_bytes, run.state_bytes) == (7 * STEP, 30 * STEP)


def test_a_program_that_has_ended_saves_no_more() -> None:
    task = leaving((2.0, exited(0, 143)))
    assert step(task, saved(1), NOW + 3).task is task


def test_a_run_that_has_failed_gets_no_more_time() -> None:
    task = leaving((2.0, exited(1, 3)))
    assert run_of(task).state is RunState.SUSPENDING
    assert run_of(step(task, saved(1), NOW + 3).task).deadline == run_of(task).deadline


@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 100), st.integers(0, 1)), max_size=60),
    st.floats(0.1, 200),
)
def test_a_report_never_shortens_the_time_nor_exceeds_its_limits(
    reports: list[tuple[float, int, int]], save_within: float
) -> None:
    task, now = leaving(save_within=save_within), ACK_AT
    end = ACK_AT + max(save_within, DEFAULTS.save_within_max)
    for seconds, count, rank in reports:
        now += seconds
        before = run_of(task)
        task = step(task, saved(count, rank=rank), now).task
        after = run_of(task)
        assert before.deadline is not None
        assert after.deadline is not None
        assert before.deadline <= after.deadline <= max(before.deadline, end)
        if after.deadline > before.deadline:
            # The timer of the server cuts what is longer.
            assert after.deadline - now <= max_deadline(task, after, DEFAULTS) + 1e-6
        repeated = step(task, saved(count, rank=rank), now + 0.5).task
        assert repeated is task  # a new stream sends the last report again


def test_without_extension_if_the_operator_wants_none() -> None:
    limits = replace(DEFAULTS, save_within_max=0.0)
    task = step(leaving(), saved(1), NOW + 3, limits).task
    assert run_of(task).deadline == NOW + 6


LEARNED = [
    pytest.param({}, None, 5.0, id="nothing: the declared time"),
    pytest.param({}, 1.0, 5.0, id="short saves: the declared time"),
    pytest.param({}, 8.0, 13.0, id="saves of 8 s"),
    pytest.param({}, 1000.0, 120.0, id="at most the platform's limit"),
    pytest.param({"save_within": 200}, 1000.0, 200.0, id="or the declared time"),
]


@pytest.mark.parametrize(("options", "longest", "seconds"), LEARNED)
def test_the_time_to_save_is_learned_from_earlier_saves(
    options: dict[str, Any], longest: float | None, seconds: float
) -> None:
    start = replace(running(**options), progress=Progress(longest_save=longest))
    asked = step(start, SUSPEND, NOW)
    assert asked.instructions == (SuspendPrograms(1, (0, 1), seconds),)
    task = step(asked.task, ACK, NOW + 1).task
    assert run_of(task).deadline == NOW + 1 + seconds
    assert instructions_on_attach(task, 0, started=True) == (SuspendPrograms(1, (0,), seconds),)
    timer = max_deadline(task, run_of(task), DEFAULTS)
    assert timer >= seconds
    forced = step(task, ev.Ticked(1), NOW + 1 + seconds)
    assert f"did not yield within {seconds:g} s" in forced.events[0].reason


@pytest.mark.parametrize(
    ("kind", "events", "longest"),
    [
        pytest.param(TaskType.TRAINING, [SUSPEND, ACK], 4.0, id="from noticing to yielding"),
        pytest.param(TaskType.TRAINING, [STOP, ACK], 4.0, id="of a stop, too"),
        pytest.param(TaskType.TRAINING, [SUSPEND], None, id="never noticed"),
        pytest.param(TaskType.TRAINING, [], None, id="not asked"),
        pytest.param(TaskType.JUPYTER, [SUSPEND, ACK], None, id="a container only waits"),
    ],
)
def test_a_suspension_teaches_how_long_a_save_takes(
    kind: TaskType, events: list[ev.Event], longest: float | None
) -> None:
    task = running()
    task = replace(task, spec=replace(task.spec, task_type=kind))
    for event in events:
        task = step(task, event, NOW).task
    assert step(task, YIELD, NOW + 4).task.progress.longest_save == longest
