"""When waiting tasks may start, for whoever asks: computed in a thread, one group at a time, and kept for a while.

A forecast takes up to two seconds of a core, so nobody waits for several of them: what is not ready in time is told so,
and found ready by the next who asks.
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

_KEPT = 30.0  # seconds
_EFFORT = Effort(passes=1_000, seconds=2.0)
_PATIENCE = 3.0  # seconds that an answer waits for forecasts
_COMPUTED = Forecast(reason="the prediction is being computed; ask again in a moment")
_FAILED = Forecast(reason="the prediction failed; the server's log says why")
_NEW = Forecast(reason="the task came, or began to wait, after the last prediction for its group")


@dataclass(frozen=True, slots=True)
class _Made:
    at: float
    starts: Mapping[int, Forecast]
    otherwise: Forecast  # for tasks that are not among them


class Forecasts:
    """One for a server: never more than one forecast is computed at a time. `close` it when nobody asks any more."""

    def __init__(self, scheduling: Scheduling, policy: Policy, clock: Clock) -> None:
        self._scheduling = scheduling
        self._policy = policy
        self._clock = clock
        self._one = asyncio.Lock()
        self._made: dict[str, _Made] = {}
        self._making: dict[str, asyncio.Task[None]] = {}
        self._work = BackgroundTasks()

    async def close(self) -> None:
        """Begin no more."""
        await self._work.close()

    async def starts(self, waiting: Iterable[tuple[int, str]]) -> dict[int, pb.PredictedStart]:
        """For tasks, each with its group."""
        groups = dict(waiting)
        await self._ready(dict.fromkeys(groups.values()))
        return {task: to_proto(self._of(task, group)) for task, group in groups.items()}

    def _of(self, task: int, group: str) -> Forecast:
        made = self._made.get(group)
        if made is None or group in self._making:
            return _COMPUTED
        return made.starts.get(task, made.otherwise)

    async def _ready(self, groups: Iterable[str]) -> None:
        """Wait until these are fresh, but not for long."""
        for group in groups:
            if group not in self._making and not self._is_fresh(self._made.get(group)):
                self._making[group] = self._work.run(self._make(group))
        if making := [self._making[group] for group in groups if group in self._making]:
            await asyncio.wait(making, timeout=_PATIENCE)

    def _is_fresh(self, made: _Made | None) -> bool:
        """One from the future was made before the clock was set back."""
        return made is not None and 0 <= self._clock.now() - made.at <= _KEPT

    async def _make(self, group: str) -> None:
        try:
            async with self._one:
                made = await self._forecast(group), _NEW
            self._made[group] = _Made(self._clock.now(), *made)
        except Exception:
            log.exception("a forecast failed", group=group)
            self._made[group] = _Made(self._clock.now(), {}, _FAILED)
        finally:  # also when it was cancelled: the next caller begins another one
            del self._making[group]

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
    """The message of a task, told when it may start; of one that does not wait, as it was."""
    if message.HasField("waiting"):
        message.waiting.predicted_start.CopyFrom(start)
    return message


def to_proto(found: Forecast) -> pb.PredictedStart:
    """Moments, or why there are none."""
    if found.p10 is None:
        return pb.PredictedStart(reason=found.reason)
    return pb.PredictedStart(
        p10=to_timestamp(found.p10),
        p50=to_timestamp(found.p50),
        p90=to_timestamp(found.p90),
        basis=found.basis,
    )
