"""The accounting of the time of a run: each row is a story with times, and the result at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from tests.support.builders import a_task

Timed = tuple[float, ev.Event]


def play(start: Task, *story: Timed) -> Task:
    for now, event in story:
        start = step(start, event, now).task
    return start


def run(number: int = 1, at: float = 0.0) -> tuple[Timed, ...]:
    """Return a run of two ranks that was placed at 0 and whose programs started at 8 and 10."""
    return (
        (at, ev.RunPlaced(("n0", "n1"), Priority.LOW, "free")),
        (at + 1, ev.RunLaunched(number)),
        *((at + 2, ev.RankAttached(number, rank, "10.0.0.1", 4000)) for rank in (0, 1)),
        (at + 8, ev.ProgramStarted(number, 0)),
        (at + 10, ev.ProgramStarted(number, 1)),
    )


def exits(at: float, code: int, yielded: bool = False) -> tuple[Timed, ...]:
    return tuple((at, ev.ProgramExited(1, rank, code, "", yielded)) for rank in (0, 1))


def gone(at: float) -> tuple[Timed, ...]:
    return tuple((at, ev.RankGone(1, rank)) for rank in (0, 1))


ASKED = (100.0, ev.SuspendAsked("scheduler", "why"))
STOPPED = (100.0, ev.StopAsked("ada"))
SEEN = (101.0, ev.SuspendAcknowledged(1, 0))
YIELDED = (103.0, ev.Yielded(1, 0))


@pytest.mark.parametrize(
    ("story", "known"),
    [
        pytest.param((*run(), *exits(100, 0), *gone(101)), {"lost_seconds": 0.0, "losses": 0}, id="success"),
        pytest.param((*run(), ASKED, SEEN, YIELDED, *exits(104, 143), *gone(105)),
                     {"yields": True, "suspend_seconds": 5.0, "lost_seconds": 0.0, "losses": 0},
                     id="asked, seen, yielded: nothing is lost"),
        pytest.param((*run(), ASKED, YIELDED, *exits(104, 143), *gone(105)),
                     {"yields": False, "lost_seconds": 0.0, "losses": 0},
                     id="a yield by chance says nothing of the next request"),
        pytest.param((*run(), ASKED, SEEN, (106, ev.Ticked(1)), *exits(107, 137), *gone(110)),
                     {"yields": False, "suspend_seconds": 10.0, "overhead_seconds": 20.0,
                      "lost_seconds": 90.0, "losses": 1},
                     id="forced out: all work since the start is lost"),
        pytest.param((*run(), *exits(100, 1), *gone(103)),
                     {"lost_seconds": 90.0, "losses": 1, "held_seconds": 103.0, "overhead_seconds": 13.0},
                     id="it failed"),
        pytest.param((*run(), (50, ev.AgentSilent(1, 0, 40)), (50, ev.NodeLost(1, 0, "power")),
                      *exits(50, 137)[1:], *gone(60)),
                     {"lost_seconds": 40.0, "losses": 1, "suspend_seconds": None}, id="its node was lost"),
        pytest.param((*run(), (50, ev.Yielded(1, 0)), *exits(51, 143), *gone(52)),
                     {"yields": False, "suspend_seconds": None, "lost_seconds": 0.0, "losses": 0},
                     id="a yield that nobody asked for"),
        pytest.param((*run(), STOPPED, (106, ev.Ticked(1)), *exits(107, 137), *gone(110)),
                     {"lost_seconds": 90.0, "losses": 0}, id="stopped by a person: lost, but no interruption"),
        pytest.param((*run(), (100, ev.StopAsked("ada", Outcome.SUCCEEDED)), (106, ev.Ticked(1)), *exits(107, 137),
                      *gone(110)), {"lost_seconds": 0.0, "losses": 0}, id="a person says that it is done"),
        pytest.param((*run()[:4], (30, ev.SuspendAsked("scheduler", "why")), (36, ev.Ticked(1)),
                      *exits(37, 143), *gone(40)),
                     {"held_seconds": 40.0, "overhead_seconds": 40.0, "lost_seconds": 0.0, "losses": 0,
                      "start_seconds": None},
                     id="it had not begun"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_is_accounted(story: tuple[Timed, ...], known: dict[str, Any]) -> None:
    task = play(a_task(nodes=2), *story)
    assert task.state is not TaskState.RUNNING
    assert {name: getattr(task.progress, name) for name in known} == known


SIGNALLED = {"suspend_signal": "SIGTERM"}


@pytest.mark.parametrize(
    ("code", "yields", "lost"),
    [
        pytest.param(3, True, 0.0, id="it handled the signal"),
        pytest.param(143, False, 90.0, id="the signal killed it"),
    ],
)
def test_programs_that_know_a_signal(code: int, yields: bool, lost: float) -> None:
    task = play(a_task(nodes=2, **SIGNALLED), *run(), ASKED, *exits(102, code), *gone(103))
    assert task.state is TaskState.SUSPENDED
    assert (task.progress.yields, task.progress.lost_seconds) == (yields, lost)


def with_save(task: Task, at: float) -> Task:
    return replace(task, progress=replace(task.progress, saved_at=at, saves=1))


@pytest.mark.parametrize(
    ("saved_at", "lost"),
    [
        pytest.param(75.0, 25.0, id="since the checkpoint"),
        pytest.param(500.0, 0.0, id="a checkpoint after the end"),
        pytest.param(-500.0, 90.0, id="a checkpoint of an earlier run"),
    ],
)
def test_only_work_after_the_last_checkpoint_is_lost(saved_at: float, lost: float) -> None:
    task = with_save(play(a_task(nodes=2), *run()), saved_at)
    assert play(task, *exits(100, 1), *gone(103)).progress.lost_seconds == lost


def test_costs_are_averaged_and_sums_span_all_runs() -> None:
    first = play(a_task(nodes=2), *run(), ASKED, SEEN, YIELDED, *exits(104, 143), *gone(105))
    assert first.progress.start_seconds == 10.0
    assert first.progress.restart_seconds == 15.0
    slow = ((200.0, ev.RunPlaced(("n0", "n1"), Priority.LOW, "free")), *run(2, 204.0)[1:])
    second = play(first, *slow)
    assert second.progress.start_seconds == 11.0  # mean of 10 and 14, the newest with weight 1/4
    assert (second.progress.yields, second.progress.held_seconds) == (True, 105.0)


def test_the_restart_cost_needs_both_measurements() -> None:
    assert Progress(start_seconds=3.0).restart_seconds is None
    assert Progress(suspend_seconds=3.0).restart_seconds is None
