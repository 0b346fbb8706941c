"""How a run is asked to save and leave, whoever wants it, and whether or not its task comes back."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.task import Run, RunState, StopCode, Task
from hai_backend.lifecycle.instructions import TellSuspend
from hai_backend.lifecycle.transition import Line, Move, live


def ask_to_suspend(task: Task, run: Run, line: Line, now: float) -> Move:
    """The task comes back. `line` says who asks, and why."""
    code = run.stop_code | StopCode.INTERRUPT
    return _ask_to_save(task, replace(run, state=RunState.SUSPENDING, stop_code=code), line, now)


def ask_to_stop(task: Task, run: Run, code: StopCode, line: Line, now: float) -> Move:
    """The task ends. The same path, so that its program may save too."""
    code |= run.stop_code
    return _ask_to_save(task, replace(run, state=RunState.STOPPING, stop_code=code), line, now)


def _ask_to_save(task: Task, run: Run, line: Line, now: float) -> Move:
    options, ranks = task.spec.options, tuple(r.index for r in run.ranks if live(r))
    run = replace(
        run,
        reason=line.reason,
        deadline=now + options.ack_within,
        acknowledged=False,
        asked_at=now,
    )
    wanted = line.actor == task.user
    tell = TellSuspend(run.number, ranks, options.save_within, wanted)
    return Move(replace(task, run=run), (tell,), (line,))
