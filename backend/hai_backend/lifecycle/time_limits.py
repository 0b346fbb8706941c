"""Time limits of runs, and how far ahead deadlines lie."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hai_backend.domain.task import Run, RunState, Task
from hai_backend.lifecycle.limits import Limits


def time_limit_at(task: Task, run: Run, renewed: float) -> float | None:
    """When the run reaches its time limit. A lifetime counts from `renewed`. None: never."""
    ends = list(_limits(task, run))
    if task.spec.options.lifetime:
        ends.append(renewed + task.spec.options.lifetime)
    return min(ends, default=None)


def limit_reached(task: Task, run: Run, now: float) -> bool:
    """Whether the run has reached a limit on its running time, not only the end of a lifetime."""
    return any(now >= end for end in _limits(task, run))


def max_deadline(task: Task, run: Run, limits: Limits) -> float:
    """The most seconds that a deadline can lie ahead in this state, whatever the clock was when it was set."""
    options = task.spec.options
    match run.state:
        case RunState.CREATED | RunState.BUILDING:
            return limits.build_within
        case RunState.SUSPENDING | RunState.STOPPING:
            return max(options.ack_within, options.save_within)
        case RunState.TERMINATING:
            return max(limits.end_grace + limits.end_slack, limits.kill_again)
        case _:
            return limits.gather if run.stop_code else math.inf


def response_timeout(task: Task, run: Run, limits: Limits) -> float:
    """Seconds that agents have to respond in this state; 0: no response is expected."""
    options = task.spec.options
    match run.state:
        case RunState.CREATED | RunState.BUILDING:
            return limits.build_within
        case RunState.SUSPENDING | RunState.STOPPING:
            return options.save_within if run.acknowledged else options.ack_within
        case _:
            return 0.0


def _limits(task: Task, run: Run) -> Iterator[float]:
    options, began = task.spec.options, run.started_at or 0.0
    if options.timeout:
        yield began + options.timeout
    if options.time_limit:
        yield began + max(0.0, options.time_limit - task.run_seconds)
