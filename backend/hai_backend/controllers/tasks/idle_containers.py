"""Dev containers that nobody uses are put away: asked whenever an agent says how its services are."""

from __future__ import annotations

from hai_backend.domain.task import RunState, Task
from hai_backend.lifecycle import events as ev


def put_away(task: Task, active_at: float | None, now: float) -> ev.SuspendAsked | None:
    """What a container that has been idle for too long is told; None: nothing."""
    timeout, run = task.spec.options.idle_timeout, task.run
    if not timeout or active_at is None or run is None or run.state is not RunState.RUNNING:
        return None
    idle = now - active_at
    if idle < timeout:
        return None
    reason = f"nobody has used it for {idle:.0f} s (idle_timeout {timeout} s)"
    return ev.SuspendAsked("server", reason, hold=True)
