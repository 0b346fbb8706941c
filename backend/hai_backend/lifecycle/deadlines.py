"""What happens when a run's deadline has passed: rules of lifecycle.TABLE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.domain.task import RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import KillRanks
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.suspend import ask_to_stop, ask_to_suspend
from hai_backend.lifecycle.time_limits import limit_reached
from hai_backend.lifecycle.transition import Line, Move, present, terminate, with_line, with_run


def built_too_long(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    if not _due(run, event, now):
        return Move(task)
    missing = [r.index for r in run.ranks if r.state is not RankState.RUNNING]
    reason = f"rank {_places(missing, run)} did not attach within {limits.build_within:.0f} s"
    return terminate(task, run, StopCode.INIT_FAILED, reason, now, limits)


def time_is_up(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    """The end of gathering after a failure, or of the task's own time."""
    if not _due(run, event, now):
        return Move(task)
    if run.stop_code:
        return terminate(task, run, StopCode.NONE, run.reason, now, limits)
    options = task.spec.options
    if options.lifetime and not limit_reached(task, run, now):
        return _put_away(task, run, now)
    limit = options.timeout or options.time_limit
    line = Line("StopAsked", f"its time limit of {limit} s was reached")
    return ask_to_stop(task, run, StopCode.TIMEOUT, line, now)


def _put_away(task: Task, run: Run, now: float) -> Move:
    """A dev container is over for now: it keeps its place and its files, and waits until somebody starts it."""
    line = Line("SuspendAsked", f"its lifetime of {task.spec.options.lifetime} s is over")
    return ask_to_suspend(replace(task, held=True), run, line, now)


def asked_too_long(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    """Neither acknowledged nor left in time; or it has failed meanwhile, and its siblings' exit codes are gathered."""
    if not _due(run, event, now):
        return Move(task)
    if run.state is RunState.SUSPENDING and run.stop_code & StopCode.FAILED:
        return terminate(task, run, StopCode.NONE, run.reason, now, limits)
    options = task.spec.options
    verb = "yield" if run.acknowledged else "acknowledge"
    seconds = options.save_within if run.acknowledged else options.ack_within
    line = Line("SuspendForced", f"the program did not {verb} within {seconds:g} s")
    return with_line(line, terminate(task, run, StopCode.NONE, run.reason, now, limits))


def end_by_force(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    """Tried again until they are gone, which a lost node may take minutes for; told once."""
    if not _due(run, event, now):
        return Move(task)
    again = run.killed_at is not None
    run = replace(run, deadline=now + limits.kill_again, killed_at=run.killed_at or now)
    line = Line("KilledByForce", f"rank {_places(present(run), run)} did not end in time")
    kill = KillRanks(run.number, present(run))
    return Move(with_run(task, run), (kill,), (line,), silent=again)


def _places(ranks: Iterable[int], run: Run) -> str:
    return ", ".join(f"{index} on {run.ranks[index].node}" for index in ranks)


def _due(run: Run, event: ev.Ticked, now: float) -> bool:
    return run.deadline is not None and (now >= run.deadline or event.passed == run.deadline)
