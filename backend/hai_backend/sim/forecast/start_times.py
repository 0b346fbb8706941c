"""Predicts when a queued task starts, by running the scheduler through sampled futures of the task's node group.

One set of futures serves all requested tasks. The interval is a prediction interval: with n futures, the start comes
before the k-th earliest sampled start with probability k / (n + 1). So the start lies between P10 and P90 with a
probability of 80 %, if the futures are like the real one. If there is too little history, the result is a reason
instead.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, floor, inf

from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState, Snapshot
from hai_backend.scheduler import Policy
from hai_backend.scheduler.queue.precedence import task_kind
from hai_backend.sim.forecast.futures import DAY, Future, Past, past_of

ENDINGS = 20  # of the group; with fewer endings, there is no prediction
TASKS = 2_000  # of the group, queued and running; with more tasks, there is no prediction


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of a forecast: futures, passes per future, horizon in seconds, and total computing time in seconds."""

    futures: int = 19
    passes: int = 400
    horizon: float = 7 * DAY
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a task starts, in seconds since the epoch: between `p10` and `p90` with a probability of 80 %.

    `p50` and `p90` are None if they lie beyond the horizon. If there is no prediction, `reason` says why.
    """

    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    basis: str = ""
    reason: str = ""


def forecast(
    snapshot: Snapshot,
    policy: Policy,
    group: str,
    task_ids: Collection[int],
    effort: Effort = Effort(),
) -> Mapping[int, Forecast]:
    """Return a forecast for each task. Equal arguments give equal results unless the time limit is reached."""
    past = past_of(snapshot, policy, group)
    found = {t.id: t for t in past.snapshot.tasks if _is_waiting(t, snapshot)}
    predictable = [number for number in task_ids if number in found]
    not_waiting = Forecast(reason="the task does not wait for nodes")
    if reason := _refusal(past):
        forecasts = dict.fromkeys(predictable, Forecast(reason=reason))
    else:
        starts = _starts(past, predictable, effort)
        forecasts = {
            number: _forecast_of(past, found[number], starts[number]) for number in predictable
        }
    return {number: forecasts.get(number, not_waiting) for number in task_ids}


def _is_waiting(task: SchedTask, snapshot: Snapshot) -> bool:
    active = task.user not in snapshot.inactive_users
    free = not (task.held or task.awaited)
    return task.standing is SchedulingState.QUEUED and free and active


def _refusal(past: Past) -> str:
    """Say why there is no prediction; return an empty text if there is one."""
    group, tasks = past.group, len(past.snapshot.tasks)
    if past.endings < ENDINGS:
        one = past.endings == 1
        ended = f"{past.endings} {'task' if one else 'tasks'} of group {group} {'has' if one else 'have'} ended"
        return f"history is thin: {ended} by now, a prediction takes {ENDINGS}"
    if tasks > TASKS:
        return f"{tasks} tasks wait or run in group {group}, a prediction looks at {TASKS} at most"
    return ""


def _starts(past: Past, task_ids: Collection[int], effort: Effort) -> Mapping[int, list[float]]:
    """Return the start times of each task, one per future; inf for a start beyond the horizon."""
    starts: dict[int, list[float]] = {number: [] for number in task_ids}
    began, each = time.monotonic(), effort.seconds / effort.futures
    for seed in range(effort.futures):
        future = Future(past, seed)
        _run(future, task_ids, effort, began + each * (seed + 1))
        for number in task_ids:
            at = future.world.simulated_tasks[number].first_start
            starts[number].append(inf if at < 0 else at)
    return starts


def _run(future: Future, task_ids: Collection[int], effort: Effort, deadline: float) -> None:
    world, passes = future.world, 0
    end = world.now + effort.horizon
    pending = [world.simulated_tasks[number] for number in task_ids]
    while (
        pending := [simulated for simulated in pending if simulated.first_start < 0]
    ) and world.now < end:
        passes += 1
        late = passes % 20 == 0 and time.monotonic() > deadline
        if passes > effort.passes or late or not future.step():
            return


def _forecast_of(past: Past, task: SchedTask, starts: list[float]) -> Forecast:
    ordered = sorted(starts)
    p10, p50, p90 = (_quantile(ordered, share) for share in (0.1, 0.5, 0.9))
    if p10 is None:
        late = (
            f"in nearly all of {len(starts)} futures it starts later than a prediction looks ahead"
        )
        return Forecast(reason=late)
    return Forecast(p10, p50, p90, _basis(past, task, len(starts)))


def _quantile(ordered: list[float], share: float) -> float | None:
    """Return the time before which the task starts with this probability, or None if it lies beyond the horizon."""
    position = min(max(0.0, share * (len(ordered) + 1) - 1), len(ordered) - 1.0)
    low, high = ordered[floor(position)], ordered[ceil(position)]
    return None if high == inf else low + (high - low) * (position - floor(position))


def _basis(past: Past, task: SchedTask, futures: int) -> str:
    curve = past.history.curve(task_kind(task))
    names = [str(part) for part in curve.kind[:-2] if part]
    alike = f" ({curve.endings} of {', '.join(names)})" if names else ""
    return (
        f"{futures} futures; run times of {past.endings} ended tasks of group {past.group}{alike}, "
        f"arrivals of the last {past.span}"
    )
