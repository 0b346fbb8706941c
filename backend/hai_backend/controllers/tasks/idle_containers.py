"""Suspends dev containers that nobody uses; called for each report of an agent about services."""

from __future__ import annotations

from hai_backend.domain.task import RunState, Task
from hai_backend.lifecycle import events as ev


def suspend_if_idle(task: Task, active_at: float | None, now: float) -> ev.SuspendAsked | None:
    """The event for a container that has been idle for too long; None: it has not."""
    timeout, run = task.spec.options.idle_timeout, task.run
    if not timeout or active_at is None or run is None or run.state is not RunState.RUNNING:
        return None
    idle = now - active_at
    if idle < timeout:
        return None
    reason = f"nobody has used it for {idle:.0f} s (idle_timeout {timeout} s)"
    return ev.SuspendAsked("server", reason, hold=True)
