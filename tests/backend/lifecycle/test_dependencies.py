"""The end of a task, with each outcome, changes the tasks that depend on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.spec import AfterOutcome, AfterSpec
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from tests.support.builders import a_task

NOW = 1000.0
SUCCEEDED, FAILED, ENDED = AfterOutcome


def waiting(*after: AfterSpec) -> Task:
    return replace(a_task(9, after=after), awaited=tuple(each.task for each in after))


def ended(task: Task, first: int, outcome: Outcome) -> Task:
    return step(task, ev.PredecessorEnded(first, outcome), NOW).task


@pytest.mark.parametrize(
    ("wanted", "outcome", "goes_on"),
    [
        (SUCCEEDED, Outcome.SUCCEEDED, True),
        (SUCCEEDED, Outcome.FAILED, False),
        (SUCCEEDED, Outcome.STOPPED, False),
        (SUCCEEDED, Outcome.CANCELED, False),
        (FAILED, Outcome.SUCCEEDED, False),
        (FAILED, Outcome.FAILED, True),
        (FAILED, Outcome.STOPPED, False),
        (FAILED, Outcome.CANCELED, False),
        (ENDED, Outcome.SUCCEEDED, True),
        (ENDED, Outcome.FAILED, True),
        (ENDED, Outcome.STOPPED, True),
        (ENDED, Outcome.CANCELED, True),
    ],
)
def test_every_end(wanted: AfterOutcome, outcome: Outcome, goes_on: bool) -> None:
    task = ended(waiting(AfterSpec(7, wanted)), 7, outcome)
    if goes_on:
        assert (task.state, task.awaited) == (TaskState.WAITING_INIT, ())
    else:
        assert (task.state, task.outcome) == (TaskState.FINISHED, Outcome.CANCELED)
        assert task.reason == f"task 7 was to have {wanted} first, and ended {outcome}"


def test_a_task_waits_for_all_dependencies_and_then_for_nodes() -> None:
    task = ended(waiting(AfterSpec(7), AfterSpec(8, ENDED)), 8, Outcome.FAILED)
    assert (task.awaited, task.progress.queued_at) == ((7,), None)
    task = ended(task, 7, Outcome.SUCCEEDED)
    assert (task.awaited, task.progress.queued_at) == ((), NOW)


def test_a_canceled_task_hands_on_its_dependencies() -> None:
    end = ev.PredecessorEnded(7, Outcome.CANCELED, (5, 8))
    made = step(waiting(AfterSpec(7, ENDED), AfterSpec(8)), end, NOW)
    assert made.task.awaited == (8, 5)
    assert made.events[0].reason == (
        "task 7 has ended CANCELED; it still waited for task 5, 8 to end"
    )
    assert ended(made.task, 5, Outcome.FAILED).awaited == (8,)
    assert ended(made.task, 8, Outcome.FAILED).outcome is Outcome.CANCELED
    never = step(waiting(AfterSpec(7), AfterSpec(8)), end, NOW).task
    assert (never.outcome, never.awaited) == (Outcome.CANCELED, (8,))


@pytest.mark.parametrize("first", [5, 7], ids=["nobody it knows", "told twice"])
def test_events_without_news_change_nothing(first: int) -> None:
    task = ended(waiting(AfterSpec(7)), 7, Outcome.SUCCEEDED)
    assert ended(task, first, Outcome.FAILED) is task


def test_a_stopped_task_ignores_the_end_of_its_dependencies() -> None:
    task = step(waiting(AfterSpec(7)), ev.StopAsked("ada"), NOW).task
    assert ended(task, 7, Outcome.FAILED) is task


def test_the_timeline_names_the_environment() -> None:
    made = step(waiting(AfterSpec(7)), ev.PredecessorEnded(7, Outcome.SUCCEEDED), NOW)
    assert [(e.actor, e.kind, e.reason) for e in made.events] == [
        ("server", "PredecessorEnded", "task 7 has ended SUCCEEDED")
    ]


def test_dependencies_handed_on_by_many_tasks_are_counted_once() -> None:
    task = waiting(AfterSpec(7, ENDED), AfterSpec(8, ENDED), AfterSpec(2, ENDED))
    for first, awaited in ((7, (1, 2)), (8, (2, 3))):
        event = ev.PredecessorEnded(first, Outcome.CANCELED, awaited)
        task = step(task, event, NOW).task
    assert task.awaited == (2, 1, 3)
