"""Rules for what happens to a run while it lives; each is one row group of lifecycle.TABLE."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.spec import OnEnd
from hai_backend.domain.task import Rank, RankState, Run, RunState, StopCode, Task
from hai_backend.tasks import accounting
from hai_backend.tasks import events as ev
from hai_backend.tasks.asks import ask_to_stop, end_of_time, limit_reached, put_away
from hai_backend.tasks.ending import end_if_all_gone, spaced
from hai_backend.tasks.environments import environment_lines
from hai_backend.tasks.exits import meaning
from hai_backend.tasks.instructions import KillRanks, TellGo, TellState
from hai_backend.tasks.limits import Limits
from hai_backend.tasks.moves import Line, Move, live, present, terminate, with_rank, with_run


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
    run = replace(run, state=RunState.RUNNING, started_at=now)
    run = replace(run, deadline=end_of_time(task, run, now))
    lines = (
        Line("RankAttached", "", "agent", event.rank),
        Line("RunStarted", "all ranks have attached"),
    )
    task = replace(task, run=run, launch_failure_count=0)
    return Move(task, (TellGo(run.number, present(run)),), lines)


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


def yielded(task: Task, run: Run, event: ev.Yielded, now: float, limits: Limits) -> Move:
    """go_suspend() of one rank ends the whole run, also when nobody had asked."""
    if run.state is RunState.RUNNING and run.stop_code:
        return Move(task)  # it is ending for another reason already
    run = replace(run, yielded=True)
    code = StopCode.NONE if run.state is RunState.STOPPING else StopCode.INTERRUPT
    move = _give_way(task, run, code, now, limits)
    lines = (Line("Yielded", "the program has saved", "agent", event.rank), *move.lines)
    return replace(move, lines=lines)


def _give_way(task: Task, run: Run, code: StopCode, now: float, limits: Limits) -> Move:
    """Whoever was not asked to yield may do it at every start: such starts lie apart."""
    if not run.stop_code:
        task = spaced(task, run, limits.back_off(1))
    return terminate(task, run, code, "the program yielded", now, limits)


def exited(task: Task, run: Run, event: ev.ProgramExited, now: float, limits: Limits) -> Move:
    rank = run.ranks[event.rank]
    if not live(rank):
        return Move(task)  # said again after a reconnect
    good = event.exit_code == 0
    state = _exit_state(task, run, event)
    run = with_rank(
        run,
        event.rank,
        state=state,
        exit_code=event.exit_code,
        last_lines="" if good else event.last_lines,
        ended_at=now,
    )
    line = Line("ProgramExited", meaning(event.exit_code), "agent", event.rank)
    if event.yielded and not (run.state is RunState.RUNNING and run.stop_code):
        run = replace(run, yielded=True)
        return _and(line, _give_way(task, run, StopCode.INTERRUPT, now, limits))
    if state is RankState.FAILED_TERMINATING:
        return _and(line, _failed(task, run, run.ranks[event.rank], now, limits))
    if state is RankState.SUCCEEDED_TERMINATING:
        return _and(line, _succeeded(task, run, run.ranks[event.rank], now, limits))
    return _and(line, _end_if_none_live(task, run, now, limits))


def _exit_state(task: Task, run: Run, event: ev.ProgramExited) -> RankState:
    asked = run.state in (RunState.SUSPENDING, RunState.STOPPING)
    by_signal = event.exit_code in (128 + 15, 128 + 10) or bool(task.spec.options.suspend_signal)
    if (
        event.yielded
        or (asked and by_signal)
        or (run.state is RunState.STOPPING and event.exit_code)
    ):
        return RankState.STOPPED_TERMINATING
    if event.exit_code == 0:
        return RankState.SUCCEEDED_TERMINATING
    return RankState.FAILED_TERMINATING


def exited_when_told(
    task: Task, run: Run, event: ev.ProgramExited, now: float, limits: Limits
) -> Move:
    """We ended it: whatever code it left with, it was stopped."""
    if not live(run.ranks[event.rank]):
        return Move(task)
    run = with_rank(
        run,
        event.rank,
        state=RankState.STOPPED_TERMINATING,
        exit_code=event.exit_code,
        ended_at=now,
    )
    line = Line("ProgramExited", meaning(event.exit_code), "agent", event.rank)
    return Move(with_run(task, run), (), (line,))


def _failed(task: Task, run: Run, rank: Rank, now: float, limits: Limits) -> Move:
    reason = f"rank {rank.index} on {rank.node} failed: {meaning(rank.exit_code or 0)}"
    verdict = _verdict(task, run, task.spec.policies.on_pod_failed)
    if verdict is OnEnd.IGNORE:
        return _end_if_none_live(task, run, now, limits)
    if verdict is OnEnd.COMPLETE:
        return terminate(task, run, StopCode.STOP, f"{reason}; policy: complete", now, limits)
    code = StopCode.FAILED if verdict is OnEnd.FAIL else StopCode.FAILED | StopCode.HOOK_RESTART
    if not any(live(r) for r in run.ranks):
        return terminate(task, run, code, reason, now, limits)
    if run.stop_code & StopCode.FAILED:
        return Move(with_run(task, run))
    gathering = replace(
        run, stop_code=run.stop_code | code, reason=reason, deadline=now + limits.gather
    )
    return Move(with_run(task, gathering))


def _verdict(task: Task, run: Run, policy: OnEnd) -> OnEnd:
    least = task.spec.policies.min_available
    available = sum(live(r) or r.exit_code == 0 for r in run.ranks)
    return OnEnd.IGNORE if least and available >= least else policy


def _succeeded(task: Task, run: Run, rank: Rank, now: float, limits: Limits) -> Move:
    policy = task.spec.policies.on_role_completed
    role = [r for r in run.ranks if r.role == rank.role]
    if rank.role and policy is not OnEnd.IGNORE and all(r.exit_code == 0 for r in role):
        codes = {
            OnEnd.COMPLETE: StopCode.STOP,
            OnEnd.FAIL: StopCode.FAILED,
            OnEnd.RESTART: StopCode.HOOK_RESTART,
        }
        reason = f"role {rank.role} completed; policy: {policy.value}"
        return terminate(task, run, codes[policy], reason, now, limits)
    return _end_if_none_live(task, run, now, limits)


def _end_if_none_live(task: Task, run: Run, now: float, limits: Limits) -> Move:
    if any(live(r) for r in run.ranks):
        return Move(with_run(task, run))
    if run.state is RunState.RUNNING:
        return terminate(task, run, StopCode.STOP, "all programs have ended", now, limits)
    return terminate(task, run, StopCode.NONE, run.reason, now, limits)


def _and(line: Line, move: Move) -> Move:
    return replace(move, lines=(line, *move.lines))


def start_failed(task: Task, run: Run, event: ev.StartFailed, now: float, limits: Limits) -> Move:
    """The agent could not start the program: a fault of the task, so it consumes a retry."""
    rank = run.ranks[event.rank]
    reason = f"rank {event.rank} on {rank.node} could not start: {event.reason}"
    run = with_rank(run, event.rank, state=RankState.FAILED_TERMINATING, ended_at=now)
    code = StopCode.INIT_FAILED | StopCode.FAILED
    line = Line("StartFailed", event.reason, "agent", event.rank)
    return _and(line, terminate(task, run, code, reason, now, limits))


def watchdog_fired(
    task: Task, run: Run, event: ev.WatchdogFired, now: float, limits: Limits
) -> Move:
    reason = (
        f"rank {event.rank} printed nothing for {event.silent_seconds:.0f} s"
        f" (watchdog_time {task.spec.options.watchdog_time} s)"
    )
    code = StopCode.TIMEOUT | StopCode.FAILED
    return _and(
        Line("WatchdogFired", reason, "agent", event.rank),
        terminate(task, run, code, reason, now, limits),
    )


def node_reported(task: Task, run: Run, event: ev.NodeReported, now: float, limits: Limits) -> Move:
    """The program blames its node: start again elsewhere, whatever its ranks may have failed of meanwhile."""
    rank = run.ranks[event.rank]
    reason = f"rank {event.rank} reported that its node {rank.node} is broken: {event.error}"
    line = Line("NodeReported", event.error, "agent", event.rank)
    if (
        run.state is RunState.STOPPING
    ):  # it leaves for good: a person's wish, or the end of its time
        return _and(line, terminate(task, run, StopCode.HOOK_RESTART, reason, now, limits))
    code = StopCode.HOOK_RESTART | StopCode.NODE_FAILURE
    return _and(line, terminate(task, replace(run, reason=reason), code, reason, now, limits))


def launch_failed(task: Task, run: Run, event: ev.LaunchFailed, now: float, limits: Limits) -> Move:
    rank = run.ranks[event.rank]
    if rank.state.gone:
        return Move(task)
    run = with_rank(run, event.rank, state=RankState.FAILED, ended_at=now)
    line = Line("LaunchFailed", event.reason, "launcher", event.rank)
    if run.state is RunState.TERMINATING:
        return _and(line, end_if_all_gone(task, run, now, limits))
    code = StopCode.UNSCHEDULABLE if event.unschedulable else StopCode.INIT_FAILED
    reason = f"rank {event.rank} could not be launched on {rank.node}: {event.reason}"
    move = terminate(task, run, code, reason, now, limits)
    ended = end_if_all_gone(move.task, move.task.run, now, limits)  # type: ignore[arg-type]
    return Move(ended.task, move.instructions, (line, *move.lines, *ended.lines))


def gone(task: Task, run: Run, event: ev.RankGone, now: float, limits: Limits) -> Move:
    rank = run.ranks[event.rank]
    if rank.state.gone:
        return Move(task)
    final = _FINAL.get(rank.state)
    if final is not None or run.state is RunState.TERMINATING:
        run = with_rank(run, event.rank, state=final or RankState.STOPPED)
        return end_if_all_gone(task, run, now, limits)
    reason = f"the agent of rank {rank.index} on {rank.node} disappeared"
    return _lost(task, run, rank, f"{reason}: {event.why}" if event.why else reason, now, limits)


_FINAL = {
    RankState.SUCCEEDED_TERMINATING: RankState.SUCCEEDED,
    RankState.FAILED_TERMINATING: RankState.FAILED,
    RankState.STOPPED_TERMINATING: RankState.STOPPED,
}


def node_lost(task: Task, run: Run, event: ev.NodeLost, now: float, limits: Limits) -> Move:
    """Its ranks may run on unseen: the run ends now, and its place is free when the launcher is sure."""
    rank = run.ranks[event.rank]
    if rank.state.gone:
        return Move(task)
    kill = KillRanks(run.number, (rank.index,))
    if not live(rank) or rank.state in _FINAL or run.state is RunState.TERMINATING:
        return Move(task, (kill,))
    reason = f"node {rank.node} was lost: {event.reason}"
    move = _lost(task, run, rank, reason, now, limits, RankState.FAILED_TERMINATING)
    return replace(move, instructions=(*move.instructions, kill))


def _lost(
    task: Task,
    run: Run,
    rank: Rank,
    reason: str,
    now: float,
    limits: Limits,
    state: RankState = RankState.FAILED,
) -> Move:
    """Nothing is expected of the rank any more; `state` says whether it may still be there."""
    without = with_rank(run, rank.index, state=RankState.FAILED)
    run = with_rank(run, rank.index, state=state, ended_at=now)
    line = Line("RankLost", reason, "launcher", rank.index)
    verdict = _verdict(task, without, task.spec.policies.on_pod_evicted)
    if verdict is OnEnd.IGNORE and any(live(r) for r in without.ranks):
        return Move(with_run(task, run), (), (line,))
    codes = {
        OnEnd.RESTART: StopCode.NODE_FAILURE,
        OnEnd.IGNORE: StopCode.NODE_FAILURE,
        OnEnd.FAIL: StopCode.FAILED,
        OnEnd.COMPLETE: StopCode.STOP,
    }
    move = terminate(task, run, codes[verdict], reason, now, limits)
    ended = end_if_all_gone(move.task, move.task.run, now, limits)  # type: ignore[arg-type]
    return Move(ended.task, move.instructions, (line, *move.lines, *ended.lines))


def state_changed(
    task: Task, run: Run, event: ev.WholeLifeStateChanged, now: float, limits: Limits
) -> Move:
    if task.whole_life_state == event.value:
        return Move(task)
    others = tuple(i for i in present(run) if i != event.rank)
    tell = (TellState(run.number, others, event.value),) if others else ()
    line = Line("WholeLifeStateChanged", f"set to {event.value}", "agent", event.rank)
    return Move(replace(task, whole_life_state=event.value), tell, (line,))


def _due(run: Run, now: float) -> bool:
    return run.deadline is not None and now >= run.deadline


def built_too_long(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    if not _due(run, now):
        return Move(task)
    missing = ", ".join(
        f"{r.index} on {r.node}" for r in run.ranks if r.state is not RankState.RUNNING
    )
    reason = f"rank {missing} did not attach within {limits.build_within:.0f} s"
    return terminate(task, run, StopCode.UNSCHEDULABLE, reason, now, limits)


def time_is_up(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    """The end of gathering after a failure, or of the task's own time."""
    if not _due(run, now):
        return Move(task)
    if run.stop_code:
        return terminate(task, run, StopCode.NONE, run.reason, now, limits)
    options = task.spec.options
    if options.lifetime and not limit_reached(task, run, now):
        return put_away(task, run, f"its lifetime of {options.lifetime} s is over", now)
    limit = options.timeout or options.time_limit
    return ask_to_stop(task, run, StopCode.TIMEOUT, f"its time limit of {limit} s was reached", now)


def asked_too_long(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    if not _due(run, now):
        return Move(task)
    options = task.spec.options
    what = (
        f"did not yield within {options.save_within:g} s"
        if run.acknowledged
        else f"did not acknowledge within {options.ack_within:g} s"
    )
    line = Line("SuspendForced", f"the program {what}")
    return _and(line, terminate(task, run, StopCode.NONE, run.reason, now, limits))


def end_by_force(task: Task, run: Run, event: ev.Ticked, now: float, limits: Limits) -> Move:
    if not _due(run, now):
        return Move(task)
    run = replace(run, deadline=now + limits.kill_again)
    line = Line("KilledByForce", "ranks did not end in time")
    return Move(with_run(task, run), (KillRanks(run.number, present(run)),), (line,))
