"""What must be said or done again after a restart: derived from the durable state, never replayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai_backend.domain.task import RankState, Run, RunState, Task, TaskState
from hai_backend.lifecycle.instructions import Instruction, Launch, TellEnd, TellGo, TellSuspend
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.lifecycle.transition import may_continue, may_run

_STARTING = (RankState.CREATED, RankState.BUILDING)


def relaunch(task: Task) -> Launch | None:
    """Ranks that may never have been made: their launch was interrupted. Starting one that exists changes nothing."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.state is not RunState.CREATED:
        return None
    ranks = tuple(r.index for r in run.ranks if r.state is RankState.CREATED)
    return Launch(run.number, ranks) if ranks else None


@dataclass(frozen=True, slots=True)
class Resumed:
    """What to do about ranks: `launch` them, take them for `gone`, or `kill` them to hear when they are.

    `unknown` may run although nothing of them is to be seen. Their run has to save and leave before they are killed: a
    launcher that is told to kill a rank counts from then on, because the rank's lease is renewed no more.
    """

    launch: Launch | None = None
    gone: tuple[int, ...] = ()
    kill: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


def resumed(task: Task, missing: frozenset[int], *, begun: bool, certain: bool = False) -> Resumed:
    """`missing`: ranks of which nothing is to be seen. `begun`: their launch had begun, so they may have been made.

    What may have been made is not made again: its agent could attach beside the new one. As long as it has not
    attached it is told to go no more once its rank counts as gone. To be asked before agents may attach.
    `certain`: what is not to be seen does not run.
    """
    run, launch = task.run, relaunch(task)
    if run is None:
        return Resumed(launch)
    unknown = frozenset() if certain else _unknown(run, missing)
    missing -= unknown
    if launch is not None and not (begun and missing & set(launch.ranks)):
        kill = _in_order(missing - set(launch.ranks))
        return Resumed(launch, kill=kill, unknown=_in_order(unknown))
    never = {r.index for r in run.ranks if r.state in _STARTING} & missing
    gone = never if run.state in (RunState.CREATED, RunState.BUILDING) else frozenset()
    return Resumed(None, _in_order(gone), _in_order(missing - gone), _in_order(unknown))


def _unknown(run: Run, missing: frozenset[int]) -> frozenset[int]:
    may = (r.index for r in run.ranks if may_run(r) and may_continue(run, r))
    return frozenset(may) & missing


def _in_order(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(ranks))


def greeting(
    task: Task, rank: int, *, started: bool, limits: Limits = DEFAULTS
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
            asked = TellSuspend(run.number, one, task.spec.options.save_within)
            return (asked,) if started else (TellGo(run.number, one), asked)
        case RunState.TERMINATING:
            return (TellEnd(run.number, one, limits.end_grace, run.reason),)
        case _:
            return ()
