"""When a run has used its time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hai_backend.domain.task import Run, RunState, Task
from hai_backend.lifecycle.limits import Limits


def end_of_time(task: Task, run: Run, renewed: float) -> float | None:
    """When a run has used its time; its lifetime counts from `renewed`. None: never."""
    ends = list(_limits(task, run))
    if task.spec.options.lifetime:
        ends.append(renewed + task.spec.options.lifetime)
    return min(ends, default=None)


def limit_reached(task: Task, run: Run, now: float) -> bool:
    """Whether it is a limit on its running that a run has reached, and not just the end of a lifetime."""
    return any(now >= end for end in _limits(task, run))


def longest(task: Task, run: Run, limits: Limits) -> float:
    """Seconds that a deadline can lie ahead in this state, whatever the clock said when it was made."""
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


def answer_within(task: Task, run: Run, limits: Limits) -> float:
    """Seconds that agents have for what they were told in this state; 0: nothing is expected of them."""
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
