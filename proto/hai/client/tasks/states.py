"""Task states by name."""

from __future__ import annotations

from hai.client.errors import UsageError
from hai.v1.task_pb2 import (
    RUN_STATE_RUNNING,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    Task,
    TaskState,
)

_PREFIX = "TASK_STATE_"


def task_state(name: str) -> TaskState.ValueType:
    """The state of a name: finished, RUNNING, TASK_STATE_SUSPENDED, waiting-init … Raises UsageError."""
    requested = _PREFIX + name.upper().replace("-", "_").removeprefix(_PREFIX)
    states = {key: value for key, value in TaskState.items() if value}
    if requested not in states:
        choices = ", ".join(key.removeprefix(_PREFIX).lower() for key in states)
        raise UsageError(f"no task state is called {name!r}", hint=f"use one of {choices}")
    return states[requested]


def reached(task: Task, state: TaskState.ValueType) -> bool:
    """True when the task is in the state, or can never reach it. RUNNING is reached when the programs run."""
    if task.state == state == TASK_STATE_RUNNING:
        return task.run.state == RUN_STATE_RUNNING
    return task.state in (state, TASK_STATE_FINISHED)
