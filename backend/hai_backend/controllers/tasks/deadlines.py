"""Rings at the deadline of a run: one timer per task that has one, none otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.task import Run, Task, TaskState
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.lifecycle.time_limits import max_deadline, response_timeout

Ring = Callable[[int, int, float], None]  # task, run, and the deadline that has passed


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a deadline has passed, in the loop's time."""

    run: int
    deadline: float
    at: float


class Deadlines:
    """Calls `ring` at (or a little after) the deadline of a task's current run.

    Deadlines are in the clock's time, which may be set, and by another machine's clock; how long they are waited for is
    counted by a clock that nobody sets, from when a deadline is first seen, and never longer than the run's state
    allows. So a clock that jumps under a program that saves takes no time from it, and gives it none.

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
        self._moments: dict[int, _Moment] = {}
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
        known = self._moments.pop(task.id, None)
        if self._waits or task.state is not TaskState.RUNNING or run is None:
            return
        if run.deadline is None:
            return
        moment = self._moments[task.id] = self._moment(task, run, run.deadline, known)
        self._handles[task.id] = asyncio.get_running_loop().call_at(
            moment.at + 0.001, self._fire, task.id, run.number, run.deadline
        )

    def _moment(self, task: Task, run: Run, deadline: float, known: _Moment | None) -> _Moment:
        now, heard_until = asyncio.get_running_loop().time(), self._heard_until(task, run)
        if known is not None and (known.run, known.deadline) == (run.number, deadline):
            return replace(known, at=max(known.at, heard_until))
        left = min(deadline - self._clock.now(), max_deadline(task, run, self._limits))
        return _Moment(run.number, deadline, max(now, now + left, heard_until))

    def _heard_until(self, task: Task, run: Run) -> float:
        """When agents that may not have heard what they were told have had their time, in the loop's; 0: they have."""
        told = run.asked_at or run.created_at
        within = response_timeout(task, run, self._limits)
        unheard = run.created_at < self._since and told < self._returned_at
        return self._patient_until + within if within and unheard else 0.0

    def _fire(self, task_id: int, run: int, deadline: float) -> None:
        self._handles.pop(task_id, None)
        self._moments.pop(task_id, None)
        self._ring(task_id, run, deadline)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
