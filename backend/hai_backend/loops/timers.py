"""Rings at the deadline of a run: one timer per task that has one, none otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hai_backend.domain.task import Task, TaskState
from hai_backend.loops.clock import Clock


class Timers:
    """`ring(task_id, run)` is called at (or a little after) the deadline of the task's current run."""

    def __init__(self, clock: Clock, ring: Callable[[int, int], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._handles: dict[int, asyncio.TimerHandle] = {}

    def set(self, task: Task) -> None:
        """Follow a changed task."""
        handle = self._handles.pop(task.id, None)
        if handle is not None:
            handle.cancel()
        run = task.run
        if task.state is not TaskState.RUNNING or run is None or run.deadline is None:
            return
        delay = max(0.0, run.deadline - self._clock.now()) + 0.001
        loop = asyncio.get_running_loop()
        self._handles[task.id] = loop.call_later(delay, self._fire, task.id, run.number)

    def again(self, task: Task) -> None:
        """Follow a task whose timer rang too early: the clock was set back meanwhile, or runs slow."""
        run = task.run
        if run is not None and run.deadline is not None and run.deadline > self._clock.now():
            self.set(task)

    def _fire(self, task_id: int, run: int) -> None:
        self._handles.pop(task_id, None)
        self._ring(task_id, run)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
