"""The waiting times of tasks are exported to Prometheus."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.controllers.metrics import task_metrics
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import AfterSpec
from hai_backend.domain.task import Outcome, Run, RunState, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from hai_backend.lifecycle.accounting import record_end
from hai_backend.metrics.prometheus import Metrics
from tests.support.builders import a_task


def after_another() -> Task:
    task = replace(a_task(2, after=(AfterSpec(1),)), awaited=(1,))
    return step(task, ev.PredecessorEnded(1, Outcome.SUCCEEDED), 900.0).task


def after_a_run() -> Task:
    run = Run(1, RunState.ENDED, (), 100.0, Priority.NORMAL, ended_at=700.0)
    return record_end(replace(a_task(), run=run), run, 700.0)


@pytest.mark.parametrize(
    ("task", "seconds"),
    [
        pytest.param(a_task(), 999.0, id="since it was submitted"),
        pytest.param(after_a_run(), 300.0, id="since its last run has ended"),
        pytest.param(after_another(), 100.0, id="since the last that went first has ended"),
    ],
)
def test_the_wait_before_a_start(task: Task, seconds: float) -> None:
    metrics = Metrics()
    placed = step(task, ev.RunPlaced(("n0",), Priority.NORMAL, "free"), 1000.0).task
    task_metrics.count(metrics, task, placed, 1000.0)
    found = metrics.registry.get_sample_value("hai_queue_wait_seconds_sum", {"priority": "NORMAL"})
    assert found == seconds


def test_tasks_wait_for_nodes_when_they_wait_for_nothing_else() -> None:
    metrics = Metrics()
    standings = task_metrics.TaskCounts(metrics)
    first, second = a_task(1), replace(a_task(2), awaited=(1,))
    seen = []
    for before, after in (
        (None, first),
        (None, second),
        (first, replace(first, state=TaskState.RUNNING)),
        (second, replace(second, awaited=())),
    ):
        standings.changed(before, after)
        standings.show((), 0)
        seen.append(metrics.registry.get_sample_value("hai_queue_tasks", {"group": "default"}))
    assert seen == [1, 1, 0, 1]
    standings.close()
    assert metrics.registry.get_sample_value("hai_queue_tasks", {"group": "default"}) is None
