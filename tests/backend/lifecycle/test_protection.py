"""A task whose runs are suspended again and again before they save is protected, and its owner is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.task import Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from tests.backend.lifecycle.test_state_machine import NOW, attach, placed, task

Story = list[ev.Event]


def suspended(by: str = "scheduler") -> list[ev.Event]:
    return [ev.SuspendAsked(by, "for task 9", for_task=9 if by == "scheduler" else 0)]


def a_run(start: Task, number: int, what: str) -> tuple[Task, list[str]]:
    """Place the next run, let it end in this way, and return the lines about its protection."""
    now, lines = NOW + 100 * number, list[str]()
    events: Story = [placed(1), ev.RunLaunched(number), attach(0, number)]
    events += [] if what == "never started" else [ev.ProgramStarted(number, 0)]
    for event in events:
        start = step(start, event, now).task
    if what == "saved":
        start = replace(start, progress=replace(start.progress, saved_at=now + 5))
    by = "ada" if what == "suspended by its owner" else "scheduler"
    end: Story = [*suspended(by), *([ev.Yielded(number, 0)] if what == "yielded" else [])]
    if what == "lost its node":
        end = [ev.AgentSilent(number, 0, now), ev.NodeLost(number, 0, "no power")]
    for at, event in enumerate([*end, ev.Ticked(number), ev.RankGone(number, 0)]):
        done = step(start, event, now + 20 + 10 * at)
        start = done.task
        lines += [line.reason for line in done.events if line.kind == "TaskProtected"]
    assert start.waiting
    return start, lines


LOST = "suspended"
STORIES = [
    pytest.param([LOST], 1, [], id="once"),
    pytest.param([LOST, LOST], 2, ["2"], id="twice"),
    pytest.param([LOST, LOST, LOST], 3, ["2", "3"], id="three times"),
    pytest.param([LOST, "saved", LOST], 1, [], id="with a checkpoint in between"),
    pytest.param([LOST, "yielded", LOST], 1, [], id="with a save at the request in between"),
    pytest.param([LOST, LOST, "saved"], 0, ["2"], id="until it has saved"),
    pytest.param([LOST, "suspended by its owner"], 1, [], id="by its owner: that does not count"),
    pytest.param([LOST, "lost its node"], 1, [], id="a lost node does not count"),
    pytest.param([LOST, "never started"], 1, [], id="a run that never began does not count"),
]


@pytest.mark.parametrize(("runs", "count", "told"), STORIES)
def test_suspensions_without_progress_are_counted_and_told(
    runs: list[str], count: int, told: list[str]
) -> None:
    now, lines = task(1), list[str]()
    for number, what in enumerate(runs, 1):
        now, more = a_run(now, number, what)
        lines += more
    assert now.progress.unsaved_suspensions == count
    assert [line.split()[2] for line in lines] == told
    assert all("were suspended before they saved" in line for line in lines)
