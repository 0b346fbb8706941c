"""The result of a rule, and steps that rules share: ask a run to save and leave, end a run, change a rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hai_backend.domain.task import Rank, RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle.instructions import (
    EndPrograms,
    Instruction,
    KillRanks,
    SuspendPrograms,
)
from hai_backend.lifecycle.limits import Limits, save_seconds


@dataclass(frozen=True, slots=True)
class Line:
    """One event for the timeline, without its time."""

    kind: str
    reason: str = ""
    actor: str = "server"
    rank: int = -1


@dataclass(frozen=True, slots=True)
class Transition:
    """The task after an event, instructions to carry out, and lines for the timeline.

    Without lines, the timeline gets one line with the name of the event.
    """

    task: Task
    instructions: tuple[Instruction, ...] = ()
    lines: tuple[Line, ...] = ()
    run: int = 0
    silent: bool = False  # the timeline gets no line at all
    record: bool = False  # the timeline gets the lines even if the task does not change


_ACTORS = {
    "RunLaunched": "launcher",
    "LaunchFailed": "launcher",
    "RankGone": "launcher",
    "NodeLost": "launcher",
    "Ticked": "server",
    "RunPlaced": "scheduler",
}


def default_line(event: Any) -> Line:
    """Return the line of an event whose rule returns no lines."""
    kind = type(event).__name__
    actor = getattr(event, "by", None) or _ACTORS.get(kind, "agent")
    return Line(kind, getattr(event, "reason", ""), actor, getattr(event, "rank", -1))


def with_run(task: Task, run: Run, **changes: Any) -> Task:
    """Return the task with its current run changed."""
    return replace(task, run=replace(run, **changes) if changes else run)


def with_rank(run: Run, index: int, **changes: Any) -> Run:
    """Return the run with one rank changed.

    All ranks of a run may change at once, one after the other, so this only copies the other ranks.
    """
    changed = _changed(run.ranks[index], changes)
    return replace(run, ranks=(*run.ranks[:index], changed, *run.ranks[index + 1 :]))


def _changed(rank: Rank, changes: Mapping[str, Any]) -> Rank:
    """Return the rank with changes. A rank of which nothing runs is not silent."""
    rank = replace(rank, **changes)
    silent = rank.silent_since is not None
    return replace(rank, silent_since=None) if silent and not may_run(rank) else rank


def with_line(line: Line, transition: Transition) -> Transition:
    """Return the transition with a line before its other lines."""
    return replace(transition, lines=(line, *transition.lines))


def existing_ranks(run: Run) -> tuple[int, ...]:
    """Return the ranks that still exist on their nodes."""
    return tuple(r.index for r in run.ranks if not r.state.terminated)


def is_live(rank: Rank) -> bool:
    """Return whether the program of the rank runs or may still start."""
    return rank.exit_code is None and not rank.state.terminated


def may_run(rank: Rank) -> bool:
    """Return whether the program may run: its agent has attached and has not reported the end of the program."""
    return is_live(rank) and rank.state not in _UNATTACHED


def may_continue(run: Run, rank: Rank) -> bool:
    """Return whether the program may continue: its run is not being ended, and the program has not exited."""
    ending = run.state in (RunState.TERMINATING, RunState.ENDED)
    return not ending and is_live(rank) and rank.state not in _EXITED


def with_cause(run: Run, code: StopCode, reason: str) -> Run:
    """Add a cause of the end of the run. The strongest cause gives the reason and decides the next state."""
    decides = not run.reason or _strength(code) > _strength(run.stop_code)
    return replace(run, stop_code=run.stop_code | code, reason=reason if decides else run.reason)


# Causes by strength, the weakest first. run_end.py examines the strongest cause first.
_BY_STRENGTH = (
    StopCode.HOOK_RESTART,
    StopCode.INTERRUPT,
    StopCode.STOP,
    StopCode.UNSCHEDULABLE | StopCode.INIT_FAILED,
    StopCode.TIMEOUT,
    StopCode.FAILED,
    StopCode.NODE_FAILURE,
    StopCode.MANUAL_STOP | StopCode.MANUAL_SUCCEEDED | StopCode.MANUAL_FAILED,
)


def _strength(code: StopCode) -> int:
    return max((i for i, cause in enumerate(_BY_STRENGTH, 1) if code & cause), default=0)


def terminate(
    task: Task, run: Run, code: StopCode, reason: str, now: float, limits: Limits
) -> Transition:
    """End the run: agents end their programs, and ranks that never attached are killed."""
    run = replace(
        with_cause(run, code, reason),
        state=RunState.TERMINATING,
        deadline=now + limits.end_grace + limits.end_slack,
    )
    attached = tuple(
        r.index for r in run.ranks if not r.state.terminated and r.state not in _UNATTACHED
    )
    unattached = tuple(r.index for r in run.ranks if r.state in _UNATTACHED)
    instructions: list[Instruction] = []
    if attached:
        instructions.append(EndPrograms(run.number, attached, limits.end_grace, run.reason))
    if unattached:
        instructions.append(KillRanks(run.number, unattached))
    return Transition(
        replace(task, run=run), tuple(instructions), (Line("RunTerminating", run.reason),)
    )


def ask_to_suspend(task: Task, run: Run, line: Line, now: float, limits: Limits) -> Transition:
    """Ask a run to save and leave. Its task is resumed later. `line` says who asks and why."""
    code = run.stop_code | StopCode.INTERRUPT
    return _ask_to_save(
        task, replace(run, state=RunState.SUSPENDING, stop_code=code), line, now, limits
    )


def ask_to_stop(
    task: Task, run: Run, code: StopCode, line: Line, now: float, limits: Limits
) -> Transition:
    """Ask a run to save and leave. Its task ends."""
    code |= run.stop_code
    return _ask_to_save(
        task, replace(run, state=RunState.STOPPING, stop_code=code), line, now, limits
    )


def _ask_to_save(task: Task, run: Run, line: Line, now: float, limits: Limits) -> Transition:
    options, ranks = task.spec.options, tuple(r.index for r in run.ranks if is_live(r))
    run = replace(
        run,
        reason=line.reason,
        deadline=now + options.ack_within,
        asked_at=now,
        acknowledged_at=None,
    )
    by_owner = line.actor == task.user
    suspend = SuspendPrograms(run.number, ranks, save_seconds(task, limits), by_owner)
    return Transition(replace(task, run=run), (suspend,), (line,))


_UNATTACHED = frozenset({RankState.CREATED, RankState.BUILDING, RankState.UNSCHEDULABLE})
_EXITED = frozenset(
    {
        RankState.SUCCEEDED_TERMINATING,
        RankState.FAILED_TERMINATING,
        RankState.STOPPED_TERMINATING,
    }
)
