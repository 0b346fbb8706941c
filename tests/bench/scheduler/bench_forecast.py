"""Predicted starts on real traces: learn from the first half, predict in the second half, compare with the replay.

Each question asks for a task that still waits right after the first pass after its submission. Tasks that have been
promised nodes are left out, because they start within seconds. The questions are spread evenly over the second half.
Intervals are compared as users see them: in whole minutes, rounded outward. An interval without an end contains every
time after its start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from pathlib import Path

from hai_backend.domain.scheduling.snapshot import SchedulingState, Snapshot
from hai_backend.scheduler import Policy
from hai_backend.sim.forecast.start_times import Effort, Forecast, forecast
from hai_backend.sim.replay.job import Job
from hai_backend.sim.replay.replay import Cluster, open_cluster
from hai_backend.sim.replay.virtual_cluster import VirtualCluster
from hai_backend.sim.traces.reader import read
from tests.bench.figures import Figure, percentile

TRACES = Path(__file__).parents[2] / "testdata" / "traces"
SLICES = {"itp04": (117, 1.0), "philly_a": (138, 1.0), "itp06": (15, 1.0), "kalos_llm": (147, 5.0)}
ASKED = 50  # of each slice, at most
_UNHURRIED = Effort(seconds=inf)


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction, when it was made, when the task really started, and how many seconds the forecast took."""

    asked_at: float
    given: Forecast
    started: float
    seconds: float

    @property
    def covered(self) -> bool:
        if self.given.p10 is None:
            return False
        end = inf if self.given.p90 is None else ceil(self.given.p90 / 60) * 60
        return floor(self.given.p10 / 60) * 60 <= self.started <= end

    @property
    def settled(self) -> bool:
        """All futures agree to the minute."""
        known = self.given.p10 is not None and self.given.p90 is not None
        return known and self.given.p90 - self.given.p10 < 60  # type: ignore[operator]


def answers(name: str) -> list[Answer]:
    """Return the answers of one slice of a trace."""
    nodes, faster = SLICES[name]
    path = TRACES / f"{name}.csv.gz"
    jobs = read(path, gpus_per_node=8, time_scale=faster, flat_priority=True)
    world = open_cluster(jobs, Cluster(nodes), Policy())
    questions = list(_questions(world, jobs))
    chosen = questions[:: max(1, ceil(len(questions) / ASKED))]
    return [
        _answer(snapshot, task, world.simulated_tasks[task].first_start)
        for snapshot, task in chosen
    ]


def _questions(world: VirtualCluster, jobs: Sequence[Job]) -> Iterator[tuple[Snapshot, int]]:
    """Replay all jobs. Yield the cluster whenever a pass leaves a new job of the second half in the queue."""
    late = [job for job in jobs if job.submit >= jobs[-1].submit / 2]
    pending = {job.id: job.submit for job in late[:: max(1, len(late) // 1000)]}
    while len(world.ended) < len(jobs):
        world.advance()
        new = [task for task in world.changed if pending.get(task, inf) <= world.now]
        world.decide()
        for task in new:
            del pending[task]
            if _unpromised(world, task):
                yield _as_shown(world), task


def _unpromised(world: VirtualCluster, task: int) -> bool:
    """Return whether the task waits and no run is being suspended for it."""
    waits = world.simulated_tasks[task].task.standing is SchedulingState.QUEUED
    return waits and not any(found.suspended_for == task for found in world.changed.values())


def _as_shown(world: VirtualCluster) -> Snapshot:
    """Return a snapshot that includes the decisions of the last pass."""
    shown = world.cache.snapshot()
    return replace(shown, tasks=tuple(world.simulated_tasks[task.id].task for task in shown.tasks))


def _answer(snapshot: Snapshot, task: int, started: float) -> Answer:
    began = time.perf_counter()
    given = forecast(snapshot, Policy(), "default", [task], _UNHURRIED)[task]
    return Answer(snapshot.now, given, started, time.perf_counter() - began)


def figures() -> Iterator[Figure]:
    with ProcessPoolExecutor() as pool:
        found = dict(zip(SLICES, pool.map(answers, SLICES), strict=True))
    for name, given in found.items():
        yield Figure(f"{name}: nominal 80 % holds, of {len(given)} tasks", _coverage(given), "%")
    every = [answer for given in found.values() for answer in given]
    unsettled = [answer for answer in every if not answer.settled]
    share = _coverage(every)
    yield Figure(f"nominal 80 % holds, of {len(every)} tasks", share, "%", 75.0, at_least=True)
    yield Figure("the same, not too wide", share, "%", 85.0)
    yield Figure(f"of {len(unsettled)} whose futures differ", _coverage(unsettled), "%")
    closed = [answer for answer in every if answer.given.p90 is not None]
    yield Figure(f"of {len(closed)} with an end", _coverage(closed), "%")
    yield Figure("without a prediction", sum(a.given.p10 is None for a in every), "tasks")
    yield Figure("without an end (p90)", sum(a.given.p90 is None for a in every), "tasks")
    yield Figure("earlier than p10", sum(_early(a) for a in every), "tasks")
    seconds = [answer.seconds for answer in every]
    yield Figure("one forecast, p50", percentile(seconds, 50), "s")
    yield Figure("one forecast, p90", percentile(seconds, 90), "s")


def _early(answer: Answer) -> bool:
    return answer.given.p10 is not None and answer.started < floor(answer.given.p10 / 60) * 60


def _coverage(given: Sequence[Answer]) -> float:
    """Return the percentage of predicted starts that were within their interval."""
    told = [answer for answer in given if answer.given.p10 is not None]
    return 100.0 * sum(answer.covered for answer in told) / max(1, len(told))
