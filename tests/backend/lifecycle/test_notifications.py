"""The changes of a task of which webhooks are notified, and the webhooks that subscribe to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.accounts.webhook import Format, Webhook, WebhookEvent
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Outcome, Run, RunState, Task, TaskState
from hai_backend.lifecycle.notifications import make_notices, webhook_event
from tests.support.builders import a_task

WAITS = replace(a_task(7, name="train"), tags=("sweep",))
BUILDS = replace(
    WAITS, state=TaskState.RUNNING, run=Run(1, RunState.BUILDING, (), 5.0, Priority.LOW)
)


def run_of(task: Task, **changes: object) -> Task:
    assert task.run is not None
    return replace(task, run=replace(task.run, **changes))


RUNS = replace(run_of(BUILDS, state=RunState.RUNNING, started_at=10.0), started_at=10.0)
LEAVES = run_of(RUNS, state=RunState.SUSPENDING, reason="preempted by task 9")
AWAY = replace(LEAVES, state=TaskState.SUSPENDED)
AGAIN = replace(AWAY, state=TaskState.RUNNING, run=replace(BUILDS.run, number=2))
RUNS_AGAIN = run_of(AGAIN, state=RunState.RUNNING, started_at=50.0)
ENDED = replace(RUNS_AGAIN, state=TaskState.FINISHED, outcome=Outcome.FAILED, reason="exit code 1")
ENDED = replace(ENDED, finished_at=7210.0)
CANCELED = replace(WAITS, state=TaskState.FINISHED, outcome=Outcome.CANCELED)


@pytest.mark.parametrize(
    ("before", "task", "news"),
    [
        pytest.param(WAITS, replace(WAITS, starred=True), None, id="a label"),
        pytest.param(WAITS, BUILDS, None, id="nodes, but no program yet"),
        pytest.param(BUILDS, RUNS, WebhookEvent.STARTED, id="its programs run"),
        pytest.param(RUNS, run_of(RUNS, deadline=1.0), None, id="still"),
        pytest.param(RUNS, LEAVES, None, id="asked to leave"),
        pytest.param(LEAVES, AWAY, WebhookEvent.SUSPENDED, id="its nodes are others'"),
        pytest.param(AWAY, AGAIN, None, id="nodes again"),
        pytest.param(AGAIN, RUNS_AGAIN, WebhookEvent.STARTED, id="a second run"),
        pytest.param(RUNS_AGAIN, ENDED, WebhookEvent.ENDED, id="the end"),
        pytest.param(BUILDS, ENDED, WebhookEvent.ENDED, id="start and end at once"),
        pytest.param(ENDED, replace(ENDED, tags=("x",)), None, id="labelled after its end"),
        pytest.param(WAITS, CANCELED, WebhookEvent.ENDED, id="it never ran"),
    ],
)
def test_webhook_events(before: Task, task: Task, news: WebhookEvent | None) -> None:
    assert webhook_event(before, task) is news


def hook(name: str, *news: WebhookEvent, tag: str = "") -> Webhook:
    return Webhook("ada", name, "https://h", tuple(map(str, news)), Format.JSON, tag, "", 0.0)


HOOKS = [
    hook("ends", WebhookEvent.ENDED),
    hook("failures", WebhookEvent.FAILED),
    hook("suspends", WebhookEvent.SUSPENDED),
    hook("sweeps", WebhookEvent.ENDED, WebhookEvent.FAILED, tag="sweep"),
    hook("others", WebhookEvent.ENDED, tag="other"),
]


@pytest.mark.parametrize(
    ("before", "task", "told"),
    [
        pytest.param(RUNS, ENDED, ["ends", "failures", "sweeps"], id="failed"),
        pytest.param(WAITS, CANCELED, ["ends", "sweeps"], id="cancelled"),
        pytest.param(LEAVES, AWAY, ["suspends"], id="suspended"),
        pytest.param(BUILDS, RUNS, [], id="started"),
    ],
)
def test_webhooks_subscribe_to_events(before: Task, task: Task, told: list[str]) -> None:
    assert [notice.webhook for notice in make_notices(HOOKS, before, task, 99.0)] == told


def test_instructions_on_attach() -> None:
    (notice,) = make_notices(HOOKS[1:2], RUNS_AGAIN, ENDED, 99.0)
    assert (notice.owner_name, notice.id, notice.time) == ("ada", "7.2.ended", 99.0)
    assert notice.facts == {
        "name": "train",
        "group": "default",
        "nodes": "1",
        "outcome": "FAILED",
        "reason": "exit code 1",
        "seconds": "7200",
    }


def test_the_reason_of_a_suspension_names_the_task_and_the_cost() -> None:
    (notice,) = make_notices(HOOKS[2:3], LEAVES, AWAY, 99.0)
    assert notice.facts["reason"] == "preempted by task 9"
