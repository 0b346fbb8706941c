"""How long each state of a run may last, and how often a launch is repeated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hai_backend.domain.task import Run, RunState, Task


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the platform, in seconds unless a comment says otherwise."""

    build_within: float = 60.0  # from the placement until all ranks have attached
    return_within: float = (
        6.0  # for agents to reconnect after a restart of the server; they try every 5 s
    )
    # the time to save is extended while bytes are saved, but it ends so long after the acknowledgement
    save_within_max: float = 120.0
    stall_within: float = 5.0  # from the last saved bytes until a save counts as stalled, at least
    gather: float = 5.0  # after a rank failed, to collect the exit codes of the other ranks
    end_grace: float = 2.0  # between SIGTERM and SIGKILL
    end_slack: float = 5.0  # after SIGKILL, until the launcher kills the ranks
    kill_again: float = 10.0  # between two attempts to kill the ranks
    back_off_first: float = 10.0  # the delay after the first failure; it doubles with each failure
    back_off_most: float = 600.0  # the longest delay
    launch_tries: int = (
        5  # launches in a row that may fail (INIT_FAILED); refusals by a node do not count
    )

    def back_off(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row (at least 1)."""
        return float(min(self.back_off_most, self.back_off_first * 2.0 ** min(failures - 1, 16)))


DEFAULTS = Limits()

_LEARNED_FACTOR, _LEARNED_MARGIN = (
    1.5,
    1.0,
)  # of the time to save over the longest of the last saves


def time_limit_at(task: Task, run: Run, renewed: float) -> float | None:
    """Return when the run reaches a time limit, or None. A lifetime counts from `renewed`."""
    ends = list(_limits(task, run))
    if task.spec.options.lifetime:
        ends.append(renewed + task.spec.options.lifetime)
    return min(ends, default=None)


def limit_reached(task: Task, run: Run, now: float) -> bool:
    """Return whether the run has reached a limit of its running time. The end of a lifetime does not count."""
    return any(now >= end for end in _limits(task, run))


def save_seconds(task: Task, limits: Limits) -> float:
    """Return the seconds that a program has to save after it has acknowledged, before any extension.

    These are the declared seconds, or more if its last saves have taken longer.
    """
    declared, longest = task.spec.options.save_within, task.progress.longest_save
    if longest is None:
        return declared
    return max(declared, min(learned_seconds(longest), limits.save_within_max))


def learned_seconds(longest: float) -> float:
    """Return the seconds that a program should have to save if the longest of its last saves took `longest`."""
    return _LEARNED_FACTOR * longest + _LEARNED_MARGIN


def stall_seconds(task: Task, limits: Limits) -> float:
    """Return the seconds without saved bytes after which a save counts as stalled.

    They are not fewer than the seconds to save: a program may flush all its bytes at the end, when none are counted.
    """
    return max(save_seconds(task, limits), limits.stall_within)


def save_ends_at(task: Task, run: Run, limits: Limits) -> float:
    """Return until when the time to save may be extended while bytes are saved."""
    options, asked_at = task.spec.options, run.asked_at or run.created_at
    began = asked_at + options.ack_within if run.acknowledged_at is None else run.acknowledged_at
    return began + max(options.save_within, limits.save_within_max)


def max_deadline(task: Task, run: Run, limits: Limits) -> float:
    """Return the longest time until a deadline in this state. A later deadline was set while the clock was wrong."""
    options = task.spec.options
    match run.state:
        case RunState.CREATED | RunState.BUILDING:
            return limits.build_within
        case RunState.SUSPENDING | RunState.STOPPING:
            return max(options.ack_within, stall_seconds(task, limits))
        case RunState.TERMINATING:
            return max(limits.end_grace + limits.end_slack, limits.kill_again)
        case _:
            return limits.gather if run.stop_code else math.inf


def response_timeout(task: Task, run: Run, limits: Limits) -> float:
    """Return the seconds that agents have to respond in this state; 0 if no response is expected."""
    options = task.spec.options
    match run.state:
        case RunState.CREATED | RunState.BUILDING:
            return limits.build_within
        case RunState.SUSPENDING | RunState.STOPPING:
            return (
                save_seconds(task, limits)
                if run.acknowledged_at is not None
                else options.ack_within
            )
        case _:
            return 0.0


def _limits(task: Task, run: Run) -> Iterator[float]:
    options, began = task.spec.options, run.started_at or 0.0
    if options.timeout:
        yield began + options.timeout
    if options.time_limit:
        yield began + max(0.0, options.time_limit - task.run_seconds)
