"""The test harness, shipped: builders and a clock here, servers in `server`, a server that kills itself in `faults`."""

from __future__ import annotations

import time
from typing import Any

from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState


class ManualClock:
    """Time that passes only when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class AheadClock:
    """The real time, and as much more as it was told: minutes pass at once, and programs of this machine go on."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


def a_spec(
    name: str = "t", nodes: int = 1, entrypoint: str = "train.py", **options: Any
) -> TaskSpec:
    """A small valid task."""
    return TaskSpec(
        name,
        ProgramSpec(entrypoint),
        resource=ResourceSpec(node_count=nodes),
        priority=Priority.NORMAL,
        options=OptionsSpec(**options),
    )


def a_task(task_id: int = 1, user: str = "ada", **spec: Any) -> Task:
    """A task in the queue."""
    made = a_spec(**spec)
    return Task(task_id, user, made, TaskState.WAITING_INIT, made.priority, created_at=1.0)
