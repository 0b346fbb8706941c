"""The lines of the timeline about the environment of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from tests.support.builders import a_task

OLD, NEW = "a" * 64, "b" * 64


def placed(task: Task) -> Task:
    return step(task, ev.RunPlaced(("n0", "n1"), Priority.NORMAL, "fits"), 1.0).task


def running(before: str = "") -> Task:
    """Return a run whose two ranks have attached. The previous run was in an environment with this lock."""
    task = a_task()
    resource = replace(task.spec.resource, node_count=2)
    options = replace(task.spec.options, py_venv="torch[ada]")
    task = placed(replace(task, spec=replace(task.spec, resource=resource, options=options)))
    number = 1
    if before:
        assert task.run is not None
        task = replace(task, run=replace(task.run, environment_lock=before))
        task = step(task, ev.LaunchFailed(1, 0, "no"), 2.0).task
        task = step(task, ev.RankGone(1, 1), 3.0).task
        task, number = placed(replace(task, not_before=0.0)), 2
    for rank in (0, 1):
        task = step(task, ev.RankAttached(number, rank, "10.0.0.1", 4000), 4.0).task
    return task


def told(task: Task, *locks: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the lock of the run and the lines after its ranks have started one after the other."""
    lines: list[tuple[str, str]] = []
    for rank, lock in enumerate(locks):
        assert task.run is not None
        outcome = step(task, ev.ProgramStarted(task.run.number, rank, lock), 5.0)
        task = outcome.task
        assert outcome.events[0].kind == "ProgramStarted"
        lines += [(e.kind, e.reason) for e in outcome.events[1:]]
    assert task.run is not None
    return task.run.environment_lock, lines


@pytest.mark.parametrize(
    ("before", "locks", "lock", "kinds"),
    [
        pytest.param("", (NEW, NEW), NEW, ["EnvironmentUsed"], id="the first time"),
        pytest.param(NEW, (NEW, NEW), NEW, [], id="the same as before"),
        pytest.param(OLD, (NEW, NEW), NEW, ["EnvironmentChanged"], id="another than before"),
        pytest.param(
            "", (OLD, NEW), OLD, ["EnvironmentUsed", "EnvironmentDiffers"], id="changed meanwhile"
        ),
        pytest.param("", ("", ""), "", ["EnvironmentMissing"] * 2, id="without it"),
    ],
)
def test_instructions_on_attach(
    before: str, locks: tuple[str, ...], lock: str, kinds: list[str]
) -> None:
    kept, lines = told(running(before), *locks)
    assert kept == lock
    assert [kind for kind, _ in lines] == kinds


def test_a_change_names_both_locks() -> None:
    _, ((_, reason),) = told(running(OLD), NEW)
    assert reason == (
        f"environment torch[ada] has lock {NEW[:12]}; in the run before it had {OLD[:12]}: "
        "its packages were changed"
    )


def test_a_task_without_an_environment_gets_no_line_about_it() -> None:
    task = running()
    options = replace(task.spec.options, py_venv="")
    assert told(replace(task, spec=replace(task.spec, options=options)), "", "") == ("", [])
