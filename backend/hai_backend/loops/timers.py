"""Rings at the deadline of a run: one timer per task that has one, none otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from hai_backend.domain.task import Run, Task, TaskState
from hai_backend.loops.clock import Clock
from hai_backend.tasks.limits import DEFAULTS, Limits
from hai_backend.tasks.time_limits import answer_within, longest

Ring = Callable[[int, int, float], None]  # task, run, and the deadline that has passed


class Timers:
    """Calls `ring` at (or a little after) the deadline of a task's current run.

    Deadlines are in the clock's time, which may be set, and by another machine's clock; how long they are waited for is
    counted by a clock that nobody sets, and never longer than the run's state allows.

    What an agent was told before it could come back to this server it may not have heard, nor could it answer: its
    time begins anew. Otherwise a restart that takes longer than a program has to save would end every program that was
    just asked to. `waits`: no deadline is met before `begin`, when agents may come back.
    """

    def __init__(
        self, clock: Clock, ring: Ring, limits: Limits = DEFAULTS, *, waits: bool = False
    ) -> None:
        self._clock = clock
        self._ring = ring
        self._limits = limits
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._waits = waits
        self._be_patient()

    def begin(self, tasks: Iterable[Task]) -> None:
        """Agents may come back from now on."""
        self._waits = False
        self._be_patient()
        for task in tasks:
            self.set(task)

    def _be_patient(self) -> None:
        within = self._limits.return_within
        self._since = self._clock.now()
        self._returned_at = self._since + within
        self._patient_until = asyncio.get_running_loop().time() + within

    def set(self, task: Task) -> None:
        """Follow a changed task."""
        handle = self._handles.pop(task.id, None)
        if handle is not None:
            handle.cancel()
        run = task.run
        if self._waits or task.state is not TaskState.RUNNING or run is None:
            return
        if run.deadline is None:
            return
        loop = asyncio.get_running_loop()
        left = min(run.deadline - self._clock.now(), longest(task, run, self._limits))
        left = max(left, self._heard_until(task, run) - loop.time())
        self._handles[task.id] = loop.call_later(
            max(0.0, left) + 0.001, self._fire, task.id, run.number, run.deadline
        )

    def _heard_until(self, task: Task, run: Run) -> float:
        """When agents that may not have heard what they were told have had their time, in the loop's; 0: they have."""
        told = run.asked_at or run.created_at
        within = answer_within(task, run, self._limits)
        unheard = run.created_at < self._since and told < self._returned_at
        return self._patient_until + within if within and unheard else 0.0

    def _fire(self, task_id: int, run: int, deadline: float) -> None:
        self._handles.pop(task_id, None)
        self._ring(task_id, run, deadline)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
