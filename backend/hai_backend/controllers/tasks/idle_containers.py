"""Suspends idle dev containers. The server checks this whenever an agent reports its services."""

from __future__ import annotations

from hai_backend.domain.task import RunState, Task
from hai_backend.lifecycle import events as ev


def suspend_if_idle(task: Task, active_at: float | None, now: float) -> ev.SuspendAsked | None:
    """Return the event that suspends a task that was idle for its `idle_timeout`, or None if it was not.

    `active_at` is the time of the last activity, or None if the task does not run.
    """
    timeout, run = task.spec.options.idle_timeout, task.run
    if not timeout or active_at is None or run is None or run.state is not RunState.RUNNING:
        return None
    idle = now - active_at
    if idle < timeout:
        return None
    reason = f"nobody has used it for {idle:.0f} s (idle_timeout {timeout} s)"
    return ev.SuspendAsked("server", reason, hold=True)
