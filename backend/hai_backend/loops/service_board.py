"""How services of ranks are, as their agents say it. Holds nothing that must survive: agents say it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai.v1.container_pb2 import SERVICE_STATE_STARTING, ServiceStatus
from hai_backend.domain.task import Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.loops.clock import Clock
from hai_backend.loops.feed import Feed


@dataclass(frozen=True, slots=True)
class Told:
    """What one agent said last. `active_at`: when somebody last did something there; None: unknown."""

    services: tuple[ServiceStatus, ...]
    active_at: float | None


class ServiceBoard:
    """By rank; and when people last did something in a task through the proxy. `feed` wakes whoever follows."""

    def __init__(self, clock: Clock) -> None:
        self.feed = Feed()
        self._clock = clock
        self._told: dict[RankKey, Told] = {}
        self._touched: dict[int, float] = {}
        self._since = clock.now()  # what was before, an earlier server knew

    def report(
        self, key: RankKey, services: Iterable[ServiceStatus], idle_seconds: float | None
    ) -> None:
        """An agent has said how its services are. Whoever waits for one that starts is there."""
        now = self._clock.now()
        active_at = None if idle_seconds is None else now - idle_seconds
        placed = []
        for status in services:
            status.rank = key.rank
            placed.append(status)
        self._told[key] = Told(tuple(placed), active_at)
        if any(status.state == SERVICE_STATE_STARTING for status in placed):
            self.touch(key.task_id)
        self.feed.publish(self.feed.version + 1)

    def touch(self, task_id: int) -> None:
        """Somebody did something in a task just now."""
        self._touched[task_id] = self._clock.now()

    def services(self, task: Task) -> list[ServiceStatus]:
        """Of the task's current run, by rank."""
        return [s for _, told in self._ranks(task) for s in told.services]

    def active_at(self, task: Task) -> float | None:
        """When somebody last did something; None: unknown, or the task does not run."""
        if task.state is not TaskState.RUNNING or task.run is None or task.run.started_at is None:
            return None
        told = [t.active_at for _, t in self._ranks(task) if t.active_at is not None]
        touched = self._touched.get(task.id)
        return max(*told, touched or 0.0, task.run.started_at, self._since)

    def follow(self, task: Task) -> None:
        """A task has changed: ranks that are over are forgotten."""
        if task.state is TaskState.FINISHED:
            self._touched.pop(task.id, None)
        number = task.run.number if task.run and task.state is TaskState.RUNNING else None
        over = [key for key in self._told if key.task_id == task.id and key.run != number]
        for key in over:
            del self._told[key]

    def _ranks(self, task: Task) -> list[tuple[RankKey, Told]]:
        if task.run is None:
            return []
        keys = (RankKey(task.id, task.run.number, rank.index) for rank in task.run.ranks)
        return [(key, told) for key in keys if (told := self._told.get(key)) is not None]
