"""Derives from the stored state which instructions to repeat after a restart of the server or of an agent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai_backend.domain.task import RankState, Run, RunState, Task, TaskState
from hai_backend.lifecycle.instructions import (
    EndPrograms,
    Instruction,
    Launch,
    StartPrograms,
    SuspendPrograms,
)
from hai_backend.lifecycle.limits import DEFAULTS, Limits, save_seconds
from hai_backend.lifecycle.rules.transition import may_continue, may_run

_STARTING = (RankState.CREATED, RankState.BUILDING)


def find_relaunch(task: Task) -> Launch | None:
    """Return the launch of ranks whose launch may have been interrupted. Launching an existing rank has no effect."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.state is not RunState.CREATED:
        return None
    ranks = tuple(r.index for r in run.ranks if r.state is RankState.CREATED)
    return Launch(run.number, ranks) if ranks else None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What to do with ranks: `launch` them, count them as `gone`, or `kill` them and wait for their end.

    `unknown` ranks may run although the launcher does not see them. Their run must save and leave before they are
    killed, because the lease of a killed rank is not renewed.
    """

    launch: Launch | None = None
    gone: tuple[int, ...] = ()
    kill: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


def plan_recovery(
    task: Task, missing: frozenset[int], *, launch_begun: bool, certain: bool = False
) -> Recovery:
    """Decide what to do with the ranks of a task after a restart. Must be called before agents may attach.

    `missing` are the ranks that the launcher does not see. With `certain`, they do not run. With `launch_begun`, their
    launch had begun, so they may exist. A rank that may exist is not launched again, because two agents of one rank
    could attach; it counts as gone, and its agent gets no order to start.
    """
    run, launch = task.run, find_relaunch(task)
    if run is None:
        return Recovery(launch)
    unknown = frozenset() if certain else _unknown(run, missing)
    missing -= unknown
    if launch is not None and not (launch_begun and missing & set(launch.ranks)):
        kill = _in_order(missing - set(launch.ranks))
        return Recovery(launch, kill=kill, unknown=_in_order(unknown))
    never_attached = {r.index for r in run.ranks if r.state in _STARTING} & missing
    gone = never_attached if run.state in (RunState.CREATED, RunState.BUILDING) else frozenset()
    return Recovery(None, _in_order(gone), _in_order(missing - gone), _in_order(unknown))


def _unknown(run: Run, missing: frozenset[int]) -> frozenset[int]:
    may = (r.index for r in run.ranks if may_run(r) and may_continue(run, r))
    return frozenset(may) & missing


def _in_order(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(ranks))


def instructions_on_attach(
    task: Task, rank: int, *, started: bool, limits: Limits = DEFAULTS
) -> tuple[Instruction, ...]:
    """Return the instructions for an agent that has attached or reconnected, by the state of its run."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.ranks[rank].exit_code is not None:
        return ()
    one = (rank,)
    match run.state:
        case RunState.RUNNING if not started:
            return (StartPrograms(run.number, one),)
        case RunState.SUSPENDING | RunState.STOPPING:
            suspend = SuspendPrograms(run.number, one, save_seconds(task, limits))
            return (suspend,) if started else (StartPrograms(run.number, one), suspend)
        case RunState.TERMINATING:
            return (EndPrograms(run.number, one, limits.end_grace, run.reason),)
        case _:
            return ()
