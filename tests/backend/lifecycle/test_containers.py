"""Lifetimes of dev containers, renewal, and suspensions that need no warning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.errors import Conflict
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, TaskSpec, TaskType
from hai_backend.domain.task import RunState, StopCode, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from hai_backend.lifecycle.instructions import SuspendPrograms


def container(**options: float) -> Task:
    """Return a container that has run since 10."""
    chosen = OptionsSpec(**options)  # type: ignore[arg-type]
    spec = TaskSpec("lab", ProgramSpec("sleep"), task_type=TaskType.JUPYTER, options=chosen)
    task = Task(5, "ada", spec, TaskState.WAITING_INIT, Priority.AUTO, 1.0)
    for event in (
        ev.RunPlaced(("n0",), Priority.NORMAL, "fits"),
        ev.RunLaunched(1),
        ev.RankAttached(1, 0, "a", 1),
    ):
        task = step(task, event, 10.0).task
    return task


def deadline(task: Task) -> float | None:
    assert task.run is not None
    return task.run.deadline


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        pytest.param({}, None, id="for ever"),
        pytest.param({"lifetime": 100}, 110.0, id="lifetime"),
        pytest.param({"lifetime": 100, "timeout": 50}, 60.0, id="limit first"),
        pytest.param({"lifetime": 100, "time_limit": 500}, 110.0, id="lifetime first"),
    ],
)
def test_a_run_that_reached_its_time_limit_is_stopped(
    options: dict[str, float], ends: float | None
) -> None:
    assert deadline(container(**options)) == ends


def test_a_container_is_suspended_and_held_at_the_end_of_its_lifetime() -> None:
    made = step(container(lifetime=100), ev.Ticked(1), 110.0)
    assert made.task.run is not None
    assert made.task.held
    assert made.task.run.state is RunState.SUSPENDING
    assert made.task.run.stop_code is StopCode.INTERRUPT
    assert [e.reason for e in made.events] == ["its lifetime of 100 s is over"]
    (told,) = made.instructions
    assert isinstance(told, SuspendPrograms)
    assert not told.by_owner


def test_a_limit_still_ends_the_task() -> None:
    made = step(container(lifetime=100, timeout=50), ev.Ticked(1), 60.0)
    assert made.task.run is not None
    assert made.task.run.state is RunState.STOPPING
    assert made.task.run.stop_code is StopCode.TIMEOUT


def test_renewing_extends_the_lifetime_but_no_time_limit() -> None:
    renewed = step(container(lifetime=100, timeout=150), ev.Renewed("ada"), 40.0)
    assert deadline(renewed.task) == 140.0
    assert [e.kind for e in renewed.events] == ["Renewed"]
    assert deadline(step(renewed.task, ev.Renewed("ada"), 120.0).task) == 160.0
    again = step(renewed.task, ev.Ticked(1), 111.0)
    assert again.task is renewed.task


def test_only_running_tasks_can_be_renewed() -> None:
    plain = container()
    assert step(plain, ev.Renewed("ada"), 40.0).task is plain
    away = replace(container(lifetime=100), state=TaskState.SUSPENDED)
    with pytest.raises(Conflict, match="begins anew when it starts"):
        step(away, ev.Renewed("ada"), 40.0)


@pytest.mark.parametrize(
    ("event", "by_owner"),
    [
        pytest.param(ev.SuspendAsked("ada", "put away", hold=True), True, id="its owner"),
        pytest.param(ev.StopAsked("ada"), True, id="its owner stops it"),
        pytest.param(ev.SuspendAsked("scheduler", "for 9", for_task=9), False, id="scheduler"),
        pytest.param(ev.SuspendAsked("olga", "drained"), False, id="operator"),
        pytest.param(ev.SuspendAsked("server", "idle", hold=True), False, id="idleness"),
    ],
)
def test_suspensions_that_need_no_warning(event: ev.TaskRequest, by_owner: bool) -> None:
    (told,) = step(container(), event, 20.0).instructions
    assert isinstance(told, SuspendPrograms)
    assert told.by_owner is by_owner
