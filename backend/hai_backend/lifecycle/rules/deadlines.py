"""Rules for deadlines of runs that have passed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.domain.task import RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import KillRanks
from hai_backend.lifecycle.limits import Limits, limit_reached, save_seconds
from hai_backend.lifecycle.rules.transition import (
    Line,
    Transition,
    ask_to_stop,
    ask_to_suspend,
    existing_ranks,
    terminate,
    with_line,
    with_run,
)
from hai_backend.lifecycle.saving import describe_unfinished_save


def check_build_deadline(
    task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits
) -> Transition:
    """End a run whose ranks have not all attached in time."""
    if not _due(run, event, now):
        return Transition(task)
    missing = [r.index for r in run.ranks if r.state is not RankState.RUNNING]
    reason = (
        f"rank {_describe_ranks(missing, run)} did not attach within {limits.build_within:.0f} s"
    )
    return terminate(task, run, StopCode.INIT_FAILED, reason, now, limits)


def check_time_limit(
    task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits
) -> Transition:
    """End a run whose time to collect exit codes is over, or which has reached a time limit."""
    if not _due(run, event, now):
        return Transition(task)
    if run.stop_code:
        return terminate(task, run, StopCode.NONE, run.reason, now, limits)
    options = task.spec.options
    if options.lifetime and not limit_reached(task, run, now):
        return _suspend_container(task, run, now, limits)
    limit = options.timeout or options.time_limit
    line = Line("StopAsked", f"its time limit of {limit} s was reached")
    return ask_to_stop(task, run, StopCode.TIMEOUT, line, now, limits)


def _suspend_container(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    """Suspend a dev container at the end of its lifetime. It keeps its files and is held until its user resumes it."""
    line = Line("SuspendAsked", f"its lifetime of {task.spec.options.lifetime} s is over")
    return ask_to_suspend(replace(task, held=True), run, line, now, limits)


def check_suspend_deadline(
    task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits
) -> Transition:
    """End a run that did not acknowledge or yield in time, or that has failed in the meantime."""
    if not _due(run, event, now):
        return Transition(task)
    if run.state is RunState.SUSPENDING and run.stop_code & StopCode.FAILED:
        return terminate(task, run, StopCode.NONE, run.reason, now, limits)
    options = task.spec.options
    if run.state_bytes:
        return _end_while_saving(task, run, now, limits)
    acknowledged = run.acknowledged_at is not None
    verb = "yield" if acknowledged else "acknowledge"
    seconds = save_seconds(task, limits) if acknowledged else options.ack_within
    line = Line("SuspendForced", f"the program did not {verb} within {seconds:g} s")
    return with_line(line, terminate(task, run, StopCode.NONE, run.reason, now, limits))


def _end_while_saving(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    """End a run in the middle of a save, and add what that has cost to the reason of its end."""
    text = describe_unfinished_save(task, run, now, limits)
    ended = terminate(task, run, StopCode.NONE, run.reason, now, limits)
    assert ended.task.run is not None
    told = with_run(ended.task, ended.task.run, reason=f"{run.reason}. {text}")
    return with_line(Line("SuspendForced", text), replace(ended, task=told))


def check_kill_deadline(
    task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits
) -> Transition:
    """Kill the ranks repeatedly until they are gone. Only the first attempt is written to the timeline."""
    if not _due(run, event, now):
        return Transition(task)
    again = run.killed_at is not None
    run = replace(run, deadline=now + limits.kill_again, killed_at=run.killed_at or now)
    line = Line(
        "KilledByForce", f"rank {_describe_ranks(existing_ranks(run), run)} did not end in time"
    )
    kill = KillRanks(run.number, existing_ranks(run))
    return Transition(with_run(task, run), (kill,), (line,), silent=again)


def _describe_ranks(ranks: Iterable[int], run: Run) -> str:
    return ", ".join(f"{index} on {run.ranks[index].node}" for index in ranks)


def _due(run: Run, event: ev.Ticked, now: float) -> bool:
    return run.deadline is not None and (now >= run.deadline or event.passed == run.deadline)
