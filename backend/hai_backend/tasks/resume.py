"""What must be said or done again after a restart: derived from the durable state, never replayed."""

from __future__ import annotations

from hai_backend.domain.task import RankState, RunState, Task, TaskState
from hai_backend.tasks.instructions import Instruction, Launch, TellEnd, TellGo, TellSuspend
from hai_backend.tasks.limits import DEFAULTS, Limits


def relaunch(task: Task) -> Launch | None:
    """Ranks that may never have been made: their launch was interrupted. Starting one that exists changes nothing."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.state is not RunState.CREATED:
        return None
    ranks = tuple(r.index for r in run.ranks if r.state is RankState.CREATED)
    return Launch(run.number, ranks) if ranks else None


def greeting(
    task: Task, rank: int, *, started: bool, now: float, limits: Limits = DEFAULTS
) -> tuple[Instruction, ...]:
    """What an agent that has just attached (perhaps again) must hear, given what the run is doing."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.ranks[rank].exit_code is not None:
        return ()
    one = (rank,)
    match run.state:
        case RunState.RUNNING if not started:
            return (TellGo(run.number, one),)
        case RunState.SUSPENDING | RunState.STOPPING:
            left = max(0.0, (run.deadline or now) - now)
            asked = TellSuspend(run.number, one, left, task.spec.options.save_within)
            return (asked,) if started else (TellGo(run.number, one), asked)
        case RunState.TERMINATING:
            return (TellEnd(run.number, one, limits.end_grace, run.reason),)
        case _:
            return ()
