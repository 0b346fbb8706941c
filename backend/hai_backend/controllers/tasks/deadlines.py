"""Calls a function at the deadlines of runs. Each task with a deadline has one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.task import Run, Task, TaskState
from hai_backend.lifecycle.limits import DEFAULTS, Limits, max_deadline, response_timeout

OnDeadline = Callable[[int, int, float], None]  # arguments: task, run, expired deadline


@dataclass(frozen=True, slots=True)
class _Timer:
    """A deadline, and the time of the event loop at which it expires."""

    run: int
    deadline: float
    at: float


class Deadlines:
    """Calls `on_deadline` at or shortly after the deadline of a task's current run.

    Deadlines are wall-clock times, perhaps of another machine. From the first time that a deadline is set here, the
    remaining time is measured with the monotonic clock, and it never exceeds the limit for the state of the run. If the
    wall clock is changed while a program saves, the program therefore has neither less nor more time.

    During a restart of the server, agents may miss a message and cannot answer, so their time begins again after the
    restart. Otherwise a long restart would end all programs that were saving. If `paused`, no deadline expires before
    `begin`, because agents cannot connect earlier.
    """

    def __init__(
        self,
        clock: Clock,
        on_deadline: OnDeadline,
        limits: Limits = DEFAULTS,
        *,
        paused: bool = False,
    ) -> None:
        self._clock = clock
        self._on_deadline = on_deadline
        self._limits = limits
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._timers: dict[int, _Timer] = {}
        self._paused = paused
        self._start_grace()

    def begin(self, tasks: Iterable[Task]) -> None:
        """Set the timers of all tasks. Agents can connect from now on."""
        self._paused = False
        self._start_grace()
        for task in tasks:
            self.set(task)

    def _start_grace(self) -> None:
        within = self._limits.return_within
        self._since = self._clock.now()
        self._returned_at = self._since + within
        self._grace_ends_at = asyncio.get_running_loop().time() + within

    def set(self, task: Task) -> None:
        """Set the timer of a task, and cancel the previous one. A task without a deadline gets none."""
        handle = self._handles.pop(task.id, None)
        if handle is not None:
            handle.cancel()
        run = task.run
        previous = self._timers.pop(task.id, None)
        if self._paused or task.state is not TaskState.RUNNING or run is None:
            return
        if run.deadline is None:
            return
        timer = self._timers[task.id] = self._timer_for(task, run, run.deadline, previous)
        self._handles[task.id] = asyncio.get_running_loop().call_at(
            timer.at + 0.001, self._expired, task.id, run.number, run.deadline
        )

    def _timer_for(self, task: Task, run: Run, deadline: float, previous: _Timer | None) -> _Timer:
        now, grace_until = asyncio.get_running_loop().time(), self._grace_until(task, run)
        if previous is not None and (previous.run, previous.deadline) == (run.number, deadline):
            return replace(previous, at=max(previous.at, grace_until))
        remaining = min(deadline - self._clock.now(), max_deadline(task, run, self._limits))
        return _Timer(run.number, deadline, max(now, now + remaining, grace_until))

    def _grace_until(self, task: Task, run: Run) -> float:
        """Return until when agents that may have missed the last message may answer, in the time of the event loop.

        Return 0 if no agent can have missed it.
        """
        requested_at = run.asked_at or run.created_at
        within = response_timeout(task, run, self._limits)
        unknown_to_agents = run.created_at < self._since and requested_at < self._returned_at
        return self._grace_ends_at + within if within and unknown_to_agents else 0.0

    def _expired(self, task_id: int, run: int, deadline: float) -> None:
        self._handles.pop(task_id, None)
        self._timers.pop(task_id, None)
        self._on_deadline(task_id, run, deadline)

    def close(self) -> None:
        """Cancel all timers."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
