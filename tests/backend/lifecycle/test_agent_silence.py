"""The silence of an agent is stored, and has no other effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step, steps

NOW = 1_800_000_000.0
SILENT, HEARD = ev.AgentSilent(1, 1, NOW - 10), ev.AgentHeard(1, 1)
STARTED = (ev.ProgramStarted(1, 0), ev.ProgramStarted(1, 1))


def attached(*ranks: int) -> Task:
    """Return a run of two ranks of which these have attached."""
    spec = TaskSpec("t", ProgramSpec("t.py"), resource=ResourceSpec(node_count=2))
    start = Task(1, "ada", spec, TaskState.WAITING_INIT, Priority.LOW, created_at=0.0)
    placed = ev.RunPlaced(("n1", "n2"), Priority.LOW, "free")
    attach = [ev.RankAttached(1, rank, "10.0.0.1", 4000) for rank in ranks]
    return steps(start, [placed, ev.RunLaunched(1), *attach], NOW - 100).task


def since(task: Task) -> list[float | None]:
    assert task.run is not None
    return [rank.silent_since for rank in task.run.ranks]


RUNNING = steps(attached(0, 1), STARTED, NOW - 90).task


@pytest.mark.parametrize(
    "happened",
    [
        pytest.param([], id="running"),
        pytest.param([ev.SuspendAsked("ada", "why")], id="suspending"),
        pytest.param([ev.StopAsked("ada")], id="stopping"),
        pytest.param([ev.Yielded(1, 0)], id="terminating"),
        pytest.param([ev.NodeLost(1, 1, "no power")], id="its node is lost"),
    ],
)
def test_silence_changes_only_silent_since(happened: list[ev.Event]) -> None:
    before = steps(RUNNING, happened, NOW).task
    silent = step(before, SILENT, NOW)
    assert since(silent.task) == [None, NOW - 10]
    assert silent.instructions == ()
    heard = step(silent.task, HEARD, NOW + 30)
    assert replace(heard.task, revision=before.revision) == before
    assert heard.instructions == ()
    assert [(line.kind, line.actor, line.rank) for line in (*silent.events, *heard.events)] == [
        ("AgentSilent", "server", 1),
        ("AgentHeard", "server", 1),
    ]


def test_the_timeline_names_the_silent_agent_and_the_time() -> None:
    silent = step(RUNNING, SILENT, NOW)
    assert (
        silent.events[0].reason == "agent of rank 1 on n2 is silent since 2027-01-15 07:59:50 UTC"
    )
    heard = step(silent.task, HEARD, NOW + 30)
    assert heard.events[0].reason == "agent of rank 1 on n2 is heard again after 40 s"


@pytest.mark.parametrize(
    ("before", "event"),
    [
        pytest.param(step(RUNNING, SILENT, NOW).task, ev.AgentSilent(1, 1, NOW), id="twice"),
        pytest.param(RUNNING, HEARD, id="was never silent"),
        pytest.param(attached(0), SILENT, id="has not attached yet"),
        pytest.param(step(RUNNING, ev.ProgramExited(1, 1, 0), NOW).task, SILENT, id="has exited"),
        pytest.param(RUNNING, ev.AgentSilent(2, 1, NOW), id="of another run"),
    ],
)
def test_events_without_news_change_nothing(before: Task, event: ev.Event) -> None:
    assert step(before, event, NOW).task is before


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ev.ProgramExited(1, 1, 0), id="its program has exited"),
        pytest.param(ev.RankGone(1, 1), id="it is gone"),
    ],
)
def test_a_rank_without_a_running_program_is_never_silent(event: ev.Event) -> None:
    assert since(steps(RUNNING, [SILENT, event], NOW).task) == [None, None]
