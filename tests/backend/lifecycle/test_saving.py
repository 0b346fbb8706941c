"""A run that was ended while it saved says so, with what it has cost and what helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.progress import Progress
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Run, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.lifecycle.saving import describe_save, describe_short_save_within
from tests.backend.lifecycle.test_state_machine import ACK, NOW, STOP, SUSPEND, gone, running
from tests.support.builders import a_spec

GIB = 1 << 30
LONG = replace(DEFAULTS, save_within_max=10.0)
RATE = "Raise save_within to about 20 s."
HEAD = "Run 1 was ended while it saved"


def saved(gib: float, of: float = 3.6, rank: int = 0) -> ev.SaveProgressed:
    return ev.SaveProgressed(1, rank, round(gib * GIB), round(of * GIB))


def ended(
    *reports: tuple[float, ev.Event],
    ask: ev.Event = SUSPEND,
    progress: Progress = Progress(),
    limits: Limits = DEFAULTS,
    work: float = 16.0,
    **options: Any,
) -> tuple[Task, list[tuple[str, str]]]:
    """Return a task whose run worked so long, was asked to leave, acknowledged at once, and did not yield in time."""
    task, lines = running(**options), list[tuple[str, str]]()
    task = replace(task, progress=progress)
    asked = NOW + work
    for seconds, event in ((0.0, ask), (0.0, ACK), *reports):
        task = step(task, event, asked + seconds, limits).task
    assert task.run is not None
    assert task.run.deadline is not None
    at = task.run.deadline
    for event in (ev.Ticked(1), *gone(0, 1)):
        done = step(task, event, at, limits)
        task, lines = done.task, lines + [(line.kind, line.reason) for line in done.events]
    return task, lines


SAVED_28 = Progress(saves=3, saved_at=NOW + 4, saved_step=28)
TEXTS = [
    pytest.param(
        {"limits": LONG, "reports": [(9.5, saved(2.1))], "progress": Progress()},
        f"{HEAD} (2.1 of 3.6 GiB after 10 s). It starts again from the beginning; 16 s of work were lost. {RATE}",
        id="at the platform's limit",
    ),
    pytest.param(
        {"limits": LONG, "reports": [(9.5, saved(2.1))], "progress": SAVED_28},
        f"{HEAD} (2.1 of 3.6 GiB after 10 s). It continues from step 28; 12 s of work were lost. {RATE}",
        id="after an earlier checkpoint",
    ),
    pytest.param(
        {"limits": LONG, "reports": [(9.5, saved(2.1))], "progress": replace(SAVED_28, saved_step=None)},
        f"{HEAD} (2.1 of 3.6 GiB after 10 s). It continues from its last checkpoint; 12 s of work were lost. {RATE}",
        id="of an unknown step",
    ),
    pytest.param(
        {"reports": [(5.0, saved(2.1))]},
        f"{HEAD} (2.1 of 3.6 GiB after 10 s, nothing more in the last 5 s)."
        f" It starts again from the beginning; 16 s of work were lost. {RATE}",
        id="that has stalled",
    ),
    pytest.param(
        {"reports": [(1.0, saved(0))]},
        f"{HEAD} (0 of 3.6 GiB after 6 s, nothing more in the last 5 s)."
        " It starts again from the beginning; 16 s of work were lost. Raise save_within to more than 6 s.",
        id="without a byte: no estimate",
    ),
    pytest.param(
        {"limits": LONG, "reports": [(9.5, saved(2.1, 2.1))]},
        f"{HEAD} (2.1 GiB so far after 10 s). It starts again from the beginning; 16 s of work were lost."
        " Raise save_within to more than 10 s.",
        id="of unknown size",
    ),
    pytest.param(
        {"limits": LONG, "reports": [(9.5, saved(0.001))], "work": 0.0},
        f"{HEAD} (0.001 of 3.6 GiB after 10 s). It starts again from the beginning."
        " The whole save would take about 10 h, longer than a task may ask for.",
        id="far too slow, before any work",
    ),
    pytest.param(
        {"limits": LONG, "reports": [(9.5, saved(2.1))], "ask": STOP},
        f"{HEAD} (2.1 of 3.6 GiB after 10 s). 16 s of work were lost. {RATE}",
        id="of a task that was stopped",
    ),
    pytest.param(
        {"limits": LONG, "reports": [(9.0, saved(1, 1.8)), (9.5, saved(1.1, 1.8, rank=1))]},
        f"{HEAD} (2.1 of 3.6 GiB after 10 s). It starts again from the beginning; 16 s of work were lost. {RATE}",
        id="on two ranks",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), TEXTS)
def test_a_run_that_was_ended_while_it_saved_says_so(given: dict[str, Any], text: str) -> None:
    task, lines = ended(*given.pop("reports"), **given)
    assert ("SuspendForced", text) in lines
    assert task.run is not None
    assert task.run.reason.endswith(f". {text}")
    if task.state is TaskState.SUSPENDED:
        assert task.reason == f"{SUSPEND.reason}. {text}"
    assert [kind for kind, reason in lines if text in reason] == ["SuspendForced", "RunEnded"]


def test_a_program_that_has_saved_but_does_not_yield_is_no_unfinished_save() -> None:
    task, lines = ended((1.0, saved(2.1)), (2.0, saved(0, 0)))
    assert ("SuspendForced", "the program did not yield within 5 s") in lines
    assert task.reason == SUSPEND.reason


@pytest.mark.parametrize(
    ("reports", "now", "text"),
    [
        pytest.param([(4.2, saved(2.1))], 4.2, "2.1 of 3.6 GiB, about 3 s left", id="at this rate"),
        pytest.param([(1.0, saved(0))], 1.0, "0 of 3.6 GiB", id="no rate yet"),
        pytest.param(
            [(9.0, saved(3.59))], 9.0, "3.59 of 3.6 GiB, about 1 s left", id="nearly done"
        ),
        pytest.param([(1.0, saved(2.1, 2.1))], 9.0, "2.1 GiB so far", id="of unknown size"),
        pytest.param([(100.0, saved(1e-6))], 100.0, "1e-06 of 3.6 GiB", id="longer than a day"),
    ],
)
def test_a_save_is_described_with_the_time_that_is_left(
    reports: list[Any], now: float, text: str
) -> None:
    task = running(save_within=200)
    for seconds, event in ((0.0, SUSPEND), (0.0, ACK), *reports):
        task = step(task, event, NOW + seconds).task
    run: Run | None = task.run
    assert run is not None
    assert describe_save(run, NOW + now) == text


@pytest.mark.parametrize(
    ("kind", "declared", "longest", "advised"),
    [
        pytest.param(TaskType.TRAINING, 5, 2.6, None, id="1.5 x 2.6 + 1 fits into 5"),
        pytest.param(TaskType.TRAINING, 5, 2.8, 10, id="1.5 x 2.8 + 1 does not"),
        pytest.param(TaskType.TRAINING, 5, 8.3, 15, id="1.5 x 8.3 + 1 is 13.45"),
        pytest.param(TaskType.TRAINING, 60, 8.3, None, id="declared"),
        pytest.param(TaskType.TRAINING, 5, 5000.0, 3600, id="no more than a task may ask for"),
        pytest.param(TaskType.TRAINING, 3600, 5000.0, None, id="nothing helps"),
        pytest.param(TaskType.JUPYTER, 5, 8.3, None, id="a container does not save by itself"),
    ],
)
def test_a_task_is_warned_if_an_earlier_one_needed_longer_to_save(
    kind: TaskType, declared: int, longest: float, advised: int | None
) -> None:
    spec = a_spec()
    options = replace(spec.options, save_within=declared)
    sentence = describe_short_save_within(
        replace(spec, task_type=kind, options=options), 12, longest
    )
    if advised is None:
        assert sentence == ""
    else:
        assert sentence.startswith("task 12 with the same name took ")
        assert f"save_within is {declared} s: " in sentence
        assert sentence.endswith(f"Set save_within to about {advised} s.")
