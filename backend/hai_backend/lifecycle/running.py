"""What a run says while it lives: rules of lifecycle.TABLE."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.task import RankState, Run, RunState, Task
from hai_backend.lifecycle import accounting
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.environments import environment_lines
from hai_backend.lifecycle.instructions import TellGo, TellState
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.time_limits import end_of_time
from hai_backend.lifecycle.transition import Line, Move, present, with_line, with_rank, with_run


def launched(task: Task, run: Run, event: ev.RunLaunched, now: float, limits: Limits) -> Move:
    ranks = tuple(
        replace(r, state=RankState.BUILDING) if r.state is RankState.CREATED else r
        for r in run.ranks
    )
    return Move(with_run(task, run, state=RunState.BUILDING, ranks=ranks))


def attached(task: Task, run: Run, event: ev.RankAttached, now: float, limits: Limits) -> Move:
    """The gang barrier: when the last rank has attached, all start."""
    run = with_rank(
        run,
        event.rank,
        state=RankState.RUNNING,
        address=event.address,
        free_port=event.free_port,
    )
    if any(r.state is not RankState.RUNNING for r in run.ranks):
        return Move(with_run(task, run))
    return with_line(Line("RankAttached", "", "agent", event.rank), _start(task, run, now))


def _start(task: Task, run: Run, now: float) -> Move:
    run = replace(run, state=RunState.RUNNING, started_at=now)
    run = replace(run, deadline=end_of_time(task, run, now))
    task = replace(task, run=run, launch_failure_count=0)
    line = Line("RunStarted", "all ranks have attached")
    return Move(task, (TellGo(run.number, present(run)),), (line,))


def program_started(
    task: Task, run: Run, event: ev.ProgramStarted, now: float, limits: Limits
) -> Move:
    if run.ranks[event.rank].started_at is not None:
        return Move(task)
    lines = environment_lines(task, run, event)
    if not any(rank.started_at is not None for rank in run.ranks):
        run = replace(run, environment_lock=event.environment_lock)
    run = with_rank(run, event.rank, started_at=now)
    task = replace(task, run=run, started_at=task.started_at or now)
    return Move(accounting.started(task, run, now), (), lines)


def acknowledged(
    task: Task, run: Run, event: ev.SuspendAcknowledged, now: float, limits: Limits
) -> Move:
    if run.acknowledged:
        return Move(task)
    return Move(
        with_run(task, run, acknowledged=True, deadline=now + task.spec.options.save_within)
    )


def state_changed(
    task: Task, run: Run, event: ev.WholeLifeStateChanged, now: float, limits: Limits
) -> Move:
    if task.whole_life_state == event.value:
        return Move(task)
    others = tuple(i for i in present(run) if i != event.rank)
    tell = (TellState(run.number, others, event.value),) if others else ()
    line = Line("WholeLifeStateChanged", f"set to {event.value}", "agent", event.rank)
    return Move(replace(task, whole_life_state=event.value), tell, (line,))
