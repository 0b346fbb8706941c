"""Time limits of the life of a run, and how often it is tried again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hai_backend.domain.task import Run, RunState, Task


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, unless said otherwise."""

    build_within: float = 60.0  # from the placement until all ranks have attached
    return_within: float = 6.0  # after a restart of the server: agents reconnect every 5 s at least
    gather: float = 5.0  # after a rank failed, for its siblings' exit codes
    end_grace: float = 2.0  # between SIGTERM and SIGKILL
    end_slack: float = 5.0  # after that the launcher kills the ranks
    kill_again: float = 10.0
    back_off_first: float = 10.0  # doubles …
    back_off_most: float = 600.0  # … up to this
    launch_tries: int = (
        5  # launches in a row that may fail (INIT_FAILED); refusals by a node do not count
    )

    def back_off(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (at least 1)."""
        return float(min(self.back_off_most, self.back_off_first * 2.0 ** min(failures - 1, 16)))


DEFAULTS = Limits()


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
