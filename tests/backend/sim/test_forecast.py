"""Forecasts of starts: a small case with a known result, refusals, limits, and repeatability."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, SchedulingState, Snapshot
from hai_backend.scheduler import Policy
from hai_backend.scheduler.queue.history import STARTS, bin_of
from hai_backend.sim.forecast.futures import DAY, Future, past_of
from hai_backend.sim.forecast.start_times import ENDINGS, TASKS, Effort, forecast

NOW, HOUR = 1_000_000.0, 3600.0
CALM = Policy(time_slices=False)


def task(id: int, **facts: Any) -> SchedTask:
    given = {"user": "ada", "group": "g", "node_count": 1, "priority": Priority.NORMAL}
    return SchedTask(id=id, **{"created_at": NOW - 60, "name": "train", **given, **facts})


def running(id: int, node: str, since: float, **facts: Any) -> SchedTask:
    return task(
        id,
        standing=SchedulingState.RUNNING,
        placed=(node,),
        run_started_at=since,
        run_priority=Priority.NORMAL,
        created_at=since,
        **facts,
    )


def endings(number: int, seconds: float = HOUR) -> tuple[Ending, ...]:
    """Return endings of tasks of long ago, which give run times but no recent arrivals."""
    return tuple(
        Ending(task(10_000 + i, created_at=NOW - 30 * DAY + i), seconds) for i in range(number)
    )


def shown(*tasks: SchedTask, nodes: int = 1, ended: tuple[Ending, ...] = ()) -> Snapshot:
    members = tuple(Node(f"n{i}", "g", gpus=8) for i in range(1, nodes + 1))
    return Snapshot(NOW, members, tasks, endings=ended)


BUSY = shown(running(1, "n1", NOW - HOUR / 2), task(2), ended=endings(2000))


def test_a_forecast_uses_the_usual_run_time_of_the_task_ahead() -> None:
    found = forecast(BUSY, CALM, "g", [2])[2]
    bin = bin_of(HOUR)
    begin = NOW - HOUR / 2
    assert None not in (found.p10, found.p50, found.p90)
    assert begin + STARTS[bin] - 60 <= found.p10 <= found.p50 <= found.p90
    assert found.p90 <= begin + STARTS[bin + 1] + 60


def test_a_forecast_states_its_basis() -> None:
    basis = forecast(BUSY, CALM, "g", [2])[2].basis
    assert basis == (
        "19 futures; run times of 2000 ended tasks of group g (2000 of ada, train), "
        "arrivals of the last 7.0 days"
    )


def test_the_same_question_has_the_same_answer() -> None:
    calm = Effort(seconds=1e9)
    assert forecast(BUSY, CALM, "g", [2], calm) == forecast(BUSY, CALM, "g", [2], calm)


def test_one_set_of_futures_serves_all_tasks() -> None:
    both = replace(BUSY, tasks=(*BUSY.tasks, task(3, created_at=NOW - 30)))
    calm = Effort(seconds=1e9)
    together = forecast(both, CALM, "g", [2, 3], calm)
    assert together[2] == forecast(both, CALM, "g", [2], calm)[2]
    assert None not in (together[2].p10, together[3].p10)
    assert together[3].p10 > together[2].p10


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        pytest.param(
            replace(BUSY, endings=endings(ENDINGS - 1)),
            "history is thin: 19 tasks of group g have ended by now, a prediction takes 20",
            id="thin history",
        ),
        pytest.param(
            replace(BUSY, tasks=(*BUSY.tasks, *(task(10 + i) for i in range(TASKS)))),
            "2002 tasks wait or run in group g, a prediction looks at 2000 at most",
            id="too many tasks",
        ),
        pytest.param(
            replace(BUSY, tasks=(BUSY.tasks[0], task(2, held=True))),
            "the task does not wait for nodes",
            id="held",
        ),
        pytest.param(
            replace(BUSY, endings=(), tasks=(BUSY.tasks[0], task(2, awaited=(1,)))),
            "the task does not wait for nodes",
            id="after another, and without history",
        ),
        pytest.param(
            replace(BUSY, inactive_users=frozenset({"ada"})),
            "the task does not wait for nodes",
            id="its user is not active",
        ),
        pytest.param(
            replace(BUSY, tasks=(BUSY.tasks[0], task(2, node_count=9))),
            "in nearly all of 19 futures it starts later than a prediction looks ahead",
            id="larger than the group",
        ),
    ],
)
def test_refusals(snapshot: Snapshot, reason: str) -> None:
    found = forecast(snapshot, CALM, "g", [2])[2]
    assert (found.p10, found.p50, found.p90, found.basis) == (None, None, None, "")
    assert found.reason == reason


def test_a_forecast_ends_after_so_many_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, step = [0], Future.step

    def counted(self: Future) -> bool:
        passes[0] += 1
        return step(self)

    monkeypatch.setattr(Future, "step", counted)
    comers = tuple(task(100 + i, created_at=NOW - DAY + i) for i in range(50))
    crowd = replace(BUSY, tasks=(*BUSY.tasks, *comers, task(99, node_count=2)))
    forecast(crowd, CALM, "g", [99], Effort(futures=3, passes=7, seconds=1e9))
    assert 0 < passes[0] <= 3 * 7


def test_nodes_of_others_and_other_groups_are_left_out() -> None:
    guest = running(7, "n2", NOW - 60, group="h")
    stranger = task(8, group="h")
    past = past_of(shown(*BUSY.tasks, guest, stranger, nodes=2), CALM, "g")
    assert [node.name for node in past.snapshot.nodes] == ["n1"]
    assert [t.id for t in past.snapshot.tasks] == [1, 2]


def test_arrivals_repeat_those_of_earlier_days_at_the_same_time_of_day() -> None:
    came = tuple(
        Ending(task(20_000 + day, created_at=NOW - day * DAY + HOUR), HOUR) for day in range(1, 7)
    )
    past = past_of(shown(running(1, "n1", NOW - HOUR), ended=(*endings(50), *came)), CALM, "g")
    future = Future(past, seed=0)
    while future.world.now < NOW + 3 * DAY:
        assert future.step()
    times = [
        at.task.created_at - NOW
        for at in future.world.simulated_tasks.values()
        if at.task.id > 20_000
    ]
    assert [at % DAY for at in times] == [HOUR] * len(times)
    assert len(times) >= 3


def test_a_first_rush_is_not_repeated_without_end() -> None:
    rush = tuple(Ending(task(20_000 + i, created_at=NOW - 60 + i), 1.0) for i in range(30))
    past = past_of(shown(running(1, "n1", NOW - HOUR), ended=rush), CALM, "g")
    future = Future(past, seed=0)
    while future.world.now < NOW + 6 * HOUR:
        assert future.step()
    assert past.span == "6 hours"
    came = [
        simulated
        for simulated in future.world.simulated_tasks.values()
        if simulated.task.id > 20_029
    ]
    assert len(came) <= 2 * 30


def test_arrivals_at_one_moment_do_not_loop() -> None:
    """Many tasks were submitted ten hours ago and none since, so hardly any period contains a submission."""
    begin = NOW - 10 * HOUR
    sweep = [task(id, created_at=begin + id / 10) for id in range(2, 60)]
    ended = tuple(Ending(each, 60.0) for each in sweep)
    past = past_of(shown(running(1, "n1", begin), ended=ended), CALM, "g")
    future = Future(past, seed=0)
    while future.step():
        assert future.world.now < NOW + 7 * DAY


def test_a_leaving_run_is_requeued_or_ends() -> None:
    leaving = replace(running(1, "n1", NOW - HOUR), standing=SchedulingState.LEAVING)
    for promised, there in ((2, True), (0, False)):
        tasks = (replace(leaving, suspended_for=promised), task(2))
        future = Future(past_of(shown(*tasks, ended=endings(50)), CALM, "g"), seed=0)
        assert future.step()
        assert future.world.now == NOW + 5
        assert (future.world.simulated_tasks[1].finished < 0) is there
        assert NOW + 5 in (
            future.world.simulated_tasks[1].first_start,
            future.world.simulated_tasks[2].first_start,
        )


@pytest.mark.parametrize(
    ("ran", "again"),
    [pytest.param(0.0, False, id="others had to end first"), pytest.param(9.0, True, id="it ran")],
)
def test_a_first_start_costs_no_restart(ran: float, again: bool) -> None:
    waits = task(1, waiting_since=NOW - 10, run_seconds=ran)
    simulated = Future(
        past_of(shown(waits, ended=endings(50)), CALM, "g"), seed=0
    ).world.simulated_tasks[1]
    assert simulated.first_start == NOW
    assert (simulated.starting > 0.0) is again
