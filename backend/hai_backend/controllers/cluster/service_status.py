"""The states of services in ranks, as agents report them. Nothing is stored, because agents repeat their reports."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hai.v1.container_pb2 import SERVICE_STATE_STARTING, ServiceStatus
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.task import Task, TaskState
from hai_backend.launch.base import RankKey


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """The last report of one agent. `active_at` is the time of the last activity, or None if it is unknown."""

    services: tuple[ServiceStatus, ...]
    active_at: float | None


class ServiceStates:
    """The reports by rank, and the last uses of each task through the proxy. `feed` announces changes."""

    def __init__(self, clock: Clock) -> None:
        self.feed = ChangeFeed()
        self._clock = clock
        self._reports: dict[int, dict[RankKey, ServiceReport]] = {}  # by task
        self._touched: dict[int, float] = {}  # by task: time of the last use
        self._since = clock.now()  # earlier activity is unknown to this server

    def report(
        self, key: RankKey, services: Iterable[ServiceStatus], idle_seconds: float | None
    ) -> None:
        """Record the report of an agent. A service that is starting counts as activity, because a user waits for it.

        `idle_seconds` is the time since the last activity. None, NaN and infinity mean that it is unknown.
        """
        known = idle_seconds is not None and math.isfinite(idle_seconds)
        active_at = self._clock.now() - max(0.0, idle_seconds or 0.0) if known else None
        placed = []
        for status in services:
            status.rank = key.rank
            placed.append(status)
        self._reports.setdefault(key.task_id, {})[key] = ServiceReport(tuple(placed), active_at)
        if any(status.state == SERVICE_STATE_STARTING for status in placed):
            self.touch(key.task_id)
        self.feed.publish(self.feed.version + 1)

    def touch(self, task_id: int) -> None:
        """Record activity of a user in a task now."""
        self._touched[task_id] = self._clock.now()

    def services(self, task: Task) -> list[ServiceStatus]:
        """Return the services of the task's current run, ordered by rank."""
        return [s for _, reports in self._ranks(task) for s in reports.services]

    def active_at(self, task: Task) -> float | None:
        """Return the time of the last activity, or None if the task does not run.

        The starts of the run and of this server count as activity.
        """
        if task.state is not TaskState.RUNNING or task.run is None or task.run.started_at is None:
            return None
        reports = [t.active_at for _, t in self._ranks(task) if t.active_at is not None]
        touched = self._touched.get(task.id)
        return max(*reports, touched or 0.0, task.run.started_at, self._since)

    def follow(self, task: Task) -> None:
        """Remove the reports of ranks that have ended, after a change of the task."""
        if task.state is TaskState.FINISHED:
            self._touched.pop(task.id, None)
        number = task.run.number if task.run and task.state is TaskState.RUNNING else None
        reports = self._reports.pop(task.id, {})
        if current := {key: each for key, each in reports.items() if key.run == number}:
            self._reports[task.id] = current

    def _ranks(self, task: Task) -> list[tuple[RankKey, ServiceReport]]:
        if task.run is None or (reports := self._reports.get(task.id)) is None:
            return []
        keys = (RankKey(task.id, task.run.number, rank.index) for rank in task.run.ranks)
        return [(key, reports[key]) for key in keys if key in reports]
