"""Predicted starts: computed on demand, one at a time, and cached."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.scheduling import forecasts as module
from hai_backend.api.scheduling.forecasts import Forecasts
from hai_backend.controllers.scheduling.snapshot import sched_task
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler import Policy
from hai_backend.sim.forecast.start_times import Forecast
from hai_backend.testing import ManualClock
from tests.support.servers import running_server

GIVEN = Forecast(60.0, 120.5, None, "19 futures")


class Shown:
    async def snapshot(self) -> Snapshot:
        return Snapshot(0.0, (), ())


class Work:
    """Replaces the computation. It counts its calls, and tests can make it slow."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.now = self.most = 0

    def __call__(self, snapshot: Snapshot, policy: Policy, group: str) -> Mapping[int, Forecast]:
        self.asked.append(group)
        self.now += 1
        self.most = max(self.most, self.now)
        assert self.go.wait(10)
        self.now -= 1
        if group == "broken":
            raise RuntimeError("what a mess")
        return {1: GIVEN, 2: Forecast(reason="history is thin")}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    found = Work()
    monkeypatch.setattr(module, "_forecast", found)
    return found


def forecasting(clock: ManualClock) -> Forecasts:
    scheduling: Any = Shown()
    return Forecasts(scheduling, Policy(), clock)


async def test_forecast_has_percentiles_or_a_reason(work: Work) -> None:
    found = await forecasting(ManualClock()).starts([(1, "g"), (2, "g"), (3, "g"), (4, "broken")])
    assert (found[1].p10.seconds, found[1].p50.nanos, found[1].basis) == (
        60,
        500_000_000,
        "19 futures",
    )
    assert not found[1].HasField("p90")
    assert (found[2].reason, found[2].HasField("p10")) == ("history is thin", False)
    assert "after the last prediction" in found[3].reason
    assert "the server's log says why" in found[4].reason


async def test_forecast_is_cached_for_half_a_minute(work: Work) -> None:
    clock = ManualClock()
    starts = forecasting(clock).starts
    for seconds, computed in (
        (0.0, 1),
        (29.0, 1),
        (2.0, 2),
        (-60.0, 3),
    ):  # the clock is set back at the end
        clock.advance(seconds)
        await starts([(1, "g"), (2, "g")])
        assert len(work.asked) == computed


async def test_cancelled_forecast_is_computed_again(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled forecast must not count as running."""
    both = forecasting(ManualClock())

    async def cancelled() -> Snapshot:
        raise asyncio.CancelledError

    with monkeypatch.context() as once:
        once.setattr(both._scheduling, "snapshot", cancelled)
        assert (await both.starts([(1, "g")]))[1].reason == module._NOT_READY.reason
    assert (await both.starts([(1, "g")]))[1].p10.seconds == 60


async def test_forecasts_run_one_at_a_time_and_callers_wait_for_a_limited_time(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.01)
    work.go.clear()
    both = forecasting(ManualClock())
    first = await asyncio.gather(both.starts([(1, "g")]), both.starts([(1, "g"), (2, "h")]))
    assert {start.reason for found in first for start in found.values()} == {
        module._NOT_READY.reason
    }
    work.go.set()
    monkeypatch.setattr(module, "_WAIT_SECONDS", 10.0)
    found = await both.starts([(1, "g"), (2, "h")])
    assert found[1].p10.seconds == 60
    assert (sorted(work.asked), work.most) == (["g", "h"], 1)


async def test_no_forecast_starts_after_the_leader_term(
    work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.01)
    work.go.clear()
    async with running_server(tmp_path, nodes=1) as server:
        assert server.app.leader is not None
        forecasts = server.app.leader.serving._forecasts
        await forecasts.starts([(1, "g"), (2, "h")])
        making = [*forecasts._running.values()]
    work.go.set()
    assert [task.cancelled() for task in making] == [True, True]


async def test_predicted_starts_are_in_the_queue_and_explanations_but_not_in_lists(
    platform: Any, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await platform.caller("ada")
    task = await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("a")))
    nodes = tuple(platform.cluster.nodes().values())
    tasks = tuple(map(sched_task, platform.task_manager.unfinished().values()))
    platform.scheduling.current_snapshot = Snapshot(1.0, nodes, tasks)
    platform.scheduling.known_waits[task.id] = Wait(
        task.id, WaitReason.NOT_ENOUGH_NODES, "0 are free", 1
    )
    monkeypatch.setattr(module, "_forecast", lambda *given: {task.id: GIVEN})
    queue = await ada.tasks.ListQueue(pb.ListQueueRequest())
    told = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=task.id))
    for waiting in (queue.tasks[0].waiting, told.waiting):
        assert waiting.predicted_start.p10.seconds == 60
    page = await ada.tasks.ListTasks(pb.ListTasksRequest())
    assert not page.tasks[0].waiting.HasField("predicted_start")
