"""Predicts when waiting tasks may start. Forecasts are computed in a thread, one group at a time, and cached.

A forecast takes up to two seconds of a core. A caller waits for a limited time only. If the forecast is not ready by
then, the response says so, and a later call gets the forecast.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from hai.v1 import task_pb2 as pb
from hai_backend.api.protocols import Scheduling
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.controllers.aio.background import BackgroundTasks
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.scheduling.snapshot import SchedulingState, Snapshot
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.sim.forecast.start_times import Effort, Forecast, forecast

log = structlog.get_logger(__name__)

_CACHE_SECONDS = 30.0
_EFFORT = Effort(passes=1_000, seconds=2.0)
_WAIT_SECONDS = 3.0  # how long a response waits for forecasts
_NOT_READY = Forecast(reason="the prediction is being computed; ask again in a moment")
_FAILED = Forecast(reason="the prediction failed; the server's log says why")
_TOO_NEW = Forecast(
    reason="the task came, or began to wait, after the last prediction for its group"
)


@dataclass(frozen=True, slots=True)
class _GroupForecast:
    made_at: float
    starts: Mapping[int, Forecast]
    default: Forecast  # for tasks that `starts` does not contain


class Forecasts:
    """The cached forecasts of a server. At most one forecast is computed at a time."""

    def __init__(self, scheduling: Scheduling, policy: Policy, clock: Clock) -> None:
        self._scheduling = scheduling
        self._policy = policy
        self._clock = clock
        self._lock = asyncio.Lock()
        self._cache: dict[str, _GroupForecast] = {}  # by group
        self._running: dict[str, asyncio.Task[None]] = {}
        self._background = BackgroundTasks()

    async def close(self) -> None:
        """Cancel running forecasts and start no more."""
        await self._background.close()

    async def starts(self, waiting: Iterable[tuple[int, str]]) -> dict[int, pb.PredictedStart]:
        """Return the predicted starts of waiting tasks. Each task is given by its id and group."""
        groups = dict(waiting)
        await self._refresh(dict.fromkeys(groups.values()))
        return {task: forecast_to_proto(self._get(task, group)) for task, group in groups.items()}

    def _get(self, task: int, group: str) -> Forecast:
        cached = self._cache.get(group)
        if cached is None or group in self._running:
            return _NOT_READY
        return cached.starts.get(task, cached.default)

    async def _refresh(self, groups: Iterable[str]) -> None:
        """Start the forecasts that are out of date, and wait for them for a limited time."""
        for group in groups:
            if group not in self._running and not self._is_fresh(self._cache.get(group)):
                self._running[group] = self._background.run(self._compute(group))
        if running := [self._running[group] for group in groups if group in self._running]:
            await asyncio.wait(running, timeout=_WAIT_SECONDS)

    def _is_fresh(self, cached: _GroupForecast | None) -> bool:
        """Say whether a forecast is new enough. Its age is negative if the clock was set back after it."""
        return cached is not None and 0 <= self._clock.now() - cached.made_at <= _CACHE_SECONDS

    async def _compute(self, group: str) -> None:
        try:
            async with self._lock:
                starts = await self._forecast(group)
            self._cache[group] = _GroupForecast(self._clock.now(), starts, _TOO_NEW)
        except Exception:
            log.exception("forecast failed", group=group)
            self._cache[group] = _GroupForecast(self._clock.now(), {}, _FAILED)
        finally:  # also after a cancellation, so that the next caller starts a new forecast
            del self._running[group]

    async def _forecast(self, group: str) -> Mapping[int, Forecast]:
        snapshot = await self._scheduling.snapshot()
        now = replace(snapshot, now=max(snapshot.now, self._clock.now()))
        return await asyncio.to_thread(_forecast, now, self._policy, group)


def _forecast(snapshot: Snapshot, policy: Policy, group: str) -> Mapping[int, Forecast]:
    queued = (
        t for t in snapshot.tasks if t.group == group and t.standing is SchedulingState.QUEUED
    )
    return forecast(snapshot, policy, group, [task.id for task in queued], _EFFORT)


def with_start(message: pb.Task, start: pb.PredictedStart) -> pb.Task:
    """Add the predicted start to the message of a task, if the task waits, and return the message."""
    if message.HasField("waiting"):
        message.waiting.predicted_start.CopyFrom(start)
    return message


def forecast_to_proto(prediction: Forecast) -> pb.PredictedStart:
    """Convert a forecast: three percentiles, or the reason why there are none."""
    if prediction.p10 is None:
        return pb.PredictedStart(reason=prediction.reason)
    return pb.PredictedStart(
        p10=to_timestamp(prediction.p10),
        p50=to_timestamp(prediction.p50),
        p90=to_timestamp(prediction.p90),
        basis=prediction.basis,
    )
