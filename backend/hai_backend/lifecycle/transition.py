"""What a rule answers, and the small steps that rules share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hai_backend.domain.task import Rank, RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle.instructions import Instruction, KillRanks, TellEnd
from hai_backend.lifecycle.limits import Limits


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline, still without its time."""

    kind: str
    reason: str = ""
    actor: str = "server"
    rank: int = -1


@dataclass(frozen=True, slots=True)
class Move:
    """The task afterwards, what to do, and what to write into the timeline (nothing: the event's own name)."""

    task: Task
    instructions: tuple[Instruction, ...] = ()
    lines: tuple[Line, ...] = ()
    run: int = 0
    silent: bool = False  # not even the event's name is written


_ACTORS = {
    "RunLaunched": "launcher",
    "LaunchFailed": "launcher",
    "RankGone": "launcher",
    "NodeLost": "launcher",
    "Ticked": "server",
    "RunPlaced": "scheduler",
}


def nothing(event: Any) -> Line:
    """The line of an event whose rule has nothing to add."""
    kind = type(event).__name__
    actor = getattr(event, "by", None) or _ACTORS.get(kind, "agent")
    return Line(kind, getattr(event, "reason", ""), actor, getattr(event, "rank", -1))


def with_run(task: Task, run: Run, **changes: Any) -> Task:
    """The task with its current run changed."""
    return replace(task, run=replace(run, **changes) if changes else run)


def with_rank(run: Run, index: int, **changes: Any) -> Run:
    """The run with one rank changed."""
    ranks = tuple(_changed(r, changes) if r.index == index else r for r in run.ranks)
    return replace(run, ranks=ranks)


def _changed(rank: Rank, changes: Mapping[str, Any]) -> Rank:
    """Nobody waits for the agent of a rank of which nothing runs any more."""
    rank = replace(rank, **changes)
    silent = rank.silent_since is not None
    return replace(rank, silent_since=None) if silent and not may_run(rank) else rank


def with_line(line: Line, move: Move) -> Move:
    """The move, its part of the timeline beginning with a line."""
    return replace(move, lines=(line, *move.lines))


def present(run: Run) -> tuple[int, ...]:
    """Ranks of which something still exists."""
    return tuple(r.index for r in run.ranks if not r.state.gone)


def live(rank: Rank) -> bool:
    """True while the rank's program runs or may yet run."""
    return rank.exit_code is None and not rank.state.gone


def may_run(rank: Rank) -> bool:
    """Whether its program may run: its agent has attached, and has not said that nothing of it runs any more."""
    return live(rank) and rank.state not in _UNATTACHED


def may_continue(run: Run, rank: Rank) -> bool:
    """Whether the rank's program may run on: neither has its run to end now, nor is the rank given up."""
    ending = run.state in (RunState.TERMINATING, RunState.ENDED)
    return not ending and live(rank) and rank.state not in _GIVEN_UP


def with_cause(run: Run, code: StopCode, reason: str) -> Run:
    """The run with one more cause of its end. Its reason is that of the cause which decides what its task becomes."""
    decides = not run.reason or _strength(code) > _strength(run.stop_code)
    return replace(run, stop_code=run.stop_code | code, reason=reason if decides else run.reason)


# What decides, the strongest last; run_end.py looks at them in this order.
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
) -> Move:
    """End what is left of the run: agents end their programs; ranks that never attached are ended by force."""
    run = replace(
        with_cause(run, code, reason),
        state=RunState.TERMINATING,
        deadline=now + limits.end_grace + limits.end_slack,
    )
    attached = tuple(r.index for r in run.ranks if not r.state.gone and r.state not in _UNATTACHED)
    never = tuple(r.index for r in run.ranks if r.state in _UNATTACHED)
    instructions: list[Instruction] = []
    if attached:
        instructions.append(TellEnd(run.number, attached, limits.end_grace, run.reason))
    if never:
        instructions.append(KillRanks(run.number, never))
    return Move(replace(task, run=run), tuple(instructions), (Line("RunTerminating", run.reason),))


_UNATTACHED = frozenset({RankState.CREATED, RankState.BUILDING, RankState.UNSCHEDULABLE})
_GIVEN_UP = frozenset(
    {
        RankState.SUCCEEDED_TERMINATING,
        RankState.FAILED_TERMINATING,
        RankState.STOPPED_TERMINATING,
    }
)
