"""Rules for failures of ranks, agents and nodes.

The silence of an agent does not end a run, because the program may continue and the agent may come back. The silence is
only shown to users.
"""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.formatting import format_utc
from hai_backend.domain.spec import OnEnd
from hai_backend.domain.task import RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import KillRanks
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.rules.exits import decide_by_policy
from hai_backend.lifecycle.rules.run_end import end_if_all_gone, with_back_off
from hai_backend.lifecycle.rules.transition import (
    Line,
    Transition,
    ask_to_stop,
    ask_to_suspend,
    is_live,
    may_continue,
    may_run,
    terminate,
    with_line,
    with_rank,
    with_run,
)


def on_start_failed(
    task: Task, run: Run, event: ev.StartFailed, now: float, limits: Limits
) -> Transition:
    """End a run whose program could not be started. This is a fault of the task, so it counts as a failure."""
    rank = run.ranks[event.rank]
    reason = f"rank {event.rank} on {rank.node} could not start: {event.reason}"
    run = with_rank(run, event.rank, state=RankState.FAILED_TERMINATING, ended_at=now)
    code = StopCode.INIT_FAILED | StopCode.FAILED
    line = Line("StartFailed", event.reason, "agent", event.rank)
    return with_line(line, terminate(task, run, code, reason, now, limits))


def on_watchdog_fired(
    task: Task, run: Run, event: ev.WatchdogFired, now: float, limits: Limits
) -> Transition:
    """End a run of which a rank has printed nothing for too long."""
    reason = (
        f"rank {event.rank} printed nothing for {event.silent_seconds:.0f} s"
        f" (watchdog_time {task.spec.options.watchdog_time} s)"
    )
    code = StopCode.TIMEOUT | StopCode.FAILED
    line = Line("WatchdogFired", reason, "agent", event.rank)
    return with_line(line, terminate(task, run, code, reason, now, limits))


def on_node_reported(
    task: Task, run: Run, event: ev.NodeReported, now: float, limits: Limits
) -> Transition:
    """End a run whose program reports its node as broken. The task starts again, even if ranks have failed too."""
    rank = run.ranks[event.rank]
    reason = f"rank {event.rank} reported that its node {rank.node} is broken: {event.error}"
    line = Line("NodeReported", event.error, "agent", event.rank)
    # The task ends: a person stopped it, or its time limit was reached.
    if run.state is RunState.STOPPING:
        return with_line(line, terminate(task, run, StopCode.HOOK_RESTART, reason, now, limits))
    code = StopCode.HOOK_RESTART | StopCode.NODE_FAILURE
    return with_line(line, terminate(task, run, code, reason, now, limits))


def on_launch_failed(
    task: Task, run: Run, event: ev.LaunchFailed, now: float, limits: Limits
) -> Transition:
    """End a run of which a rank could not be launched."""
    rank = run.ranks[event.rank]
    if rank.state.terminated:
        return Transition(task)
    run = with_rank(run, event.rank, state=RankState.FAILED, ended_at=now)
    line = Line("LaunchFailed", event.reason, "launcher", event.rank)
    if run.state is RunState.TERMINATING:
        return with_line(line, end_if_all_gone(task, run, now, limits))
    code = StopCode.UNSCHEDULABLE if event.unschedulable else StopCode.INIT_FAILED
    reason = f"rank {event.rank} could not be launched on {rank.node}: {event.reason}"
    transition = terminate(task, run, code, reason, now, limits)
    return with_line(line, _and_end(transition, now, limits))


def on_rank_gone(
    task: Task, run: Run, event: ev.RankGone, now: float, limits: Limits
) -> Transition:
    """Store that a rank is gone. End the run if its agent has disappeared without an exit of the program."""
    rank = run.ranks[event.rank]
    if rank.state.terminated:
        return Transition(task)
    final = _FINAL.get(rank.state)
    if final is not None or run.state is RunState.TERMINATING:
        run = with_rank(run, event.rank, state=final or RankState.STOPPED)
        return end_if_all_gone(task, run, now, limits)
    run = with_rank(run, event.rank, state=RankState.FAILED, ended_at=now)
    reason = f"the agent of rank {rank.index} on {rank.node} disappeared"
    reason = f"{reason}: {event.why}" if event.why else reason
    # The node is ready, so the program may have ended its agent, and may do so on every node.
    task = with_back_off(task, run, limits.back_off(task.node_failure_count + 1), now)
    return _lost(task, run, Line("RankLost", reason, "launcher", rank.index), now, limits)


_FINAL = {
    RankState.SUCCEEDED_TERMINATING: RankState.SUCCEEDED,
    RankState.FAILED_TERMINATING: RankState.FAILED,
    RankState.STOPPED_TERMINATING: RankState.STOPPED,
}


_CODES = {
    OnEnd.RESTART: StopCode.NODE_FAILURE,
    OnEnd.FAIL: StopCode.FAILED,
    OnEnd.COMPLETE: StopCode.STOP,
}


def on_node_lost(
    task: Task, run: Run, event: ev.NodeLost, now: float, limits: Limits
) -> Transition:
    """End a run on a node that is unreachable. The node is free when the launcher is sure that the rank is gone.

    While the agent of the rank answers, only the kubelet may have failed, so the program is asked to save first.
    """
    rank = run.ranks[event.rank]
    if rank.state.terminated:
        return Transition(task)
    if may_continue(run, rank) and may_run(rank) and rank.silent_since is None:
        if run.state in (RunState.SUSPENDING, RunState.STOPPING):
            return Transition(task)  # the program saves already; its deadlines apply
        verdict = _verdict(task, run, rank.index)
        if run.state is RunState.RUNNING and not run.stop_code and verdict is not OnEnd.IGNORE:
            return _ask_to_save(task, run, event, verdict, now, limits)
    kill = KillRanks(run.number, (rank.index,))
    if not is_live(rank) or rank.state in _FINAL or run.state is RunState.TERMINATING:
        return Transition(task, (kill,))
    run = with_rank(run, event.rank, state=RankState.FAILED_TERMINATING, ended_at=now)
    line = Line("RankLost", f"node {rank.node} was lost: {event.reason}", "launcher", rank.index)
    transition = _lost(task, run, line, now, limits)
    return replace(transition, instructions=(*transition.instructions, kill))


def _ask_to_save(
    task: Task, run: Run, event: ev.NodeLost, verdict: OnEnd, now: float, limits: Limits
) -> Transition:
    rank = run.ranks[event.rank]
    reason = f"node {rank.node} was lost: {event.reason}; the agent of rank {rank.index} answers"
    if verdict is OnEnd.RESTART:
        line = Line("SuspendAsked", reason, "cluster", rank.index)
        return ask_to_suspend(task, run, line, now, limits)
    line = Line("StopAsked", reason, "cluster", rank.index)
    return ask_to_stop(task, run, _CODES[verdict], line, now, limits)


def _verdict(task: Task, run: Run, lost: int) -> OnEnd:
    """Return the policy of the task for a run that loses this rank."""
    without = with_rank(run, lost, state=RankState.FAILED)
    verdict = decide_by_policy(task, without, task.spec.policies.on_pod_evicted)
    alone = not any(is_live(r) for r in without.ranks)
    return OnEnd.RESTART if verdict is OnEnd.IGNORE and alone else verdict


def _lost(task: Task, run: Run, line: Line, now: float, limits: Limits) -> Transition:
    """Apply the policy of the task to a run that has lost the rank of this line."""
    verdict = _verdict(task, run, line.rank)
    if verdict is OnEnd.IGNORE:
        return Transition(with_run(task, run), (), (line,))
    transition = terminate(task, run, _CODES[verdict], line.reason, now, limits)
    return with_line(line, _and_end(transition, now, limits))


def _and_end(transition: Transition, now: float, limits: Limits) -> Transition:
    """End the run if the lost rank was the last one."""
    assert transition.task.run is not None
    ended = end_if_all_gone(transition.task, transition.task.run, now, limits)
    return replace(transition, task=ended.task, lines=(*transition.lines, *ended.lines))


def on_agent_silent(
    task: Task, run: Run, event: ev.AgentSilent, now: float, limits: Limits
) -> Transition:
    """Store since when the agent of a rank whose program may run has been silent."""
    rank = run.ranks[event.rank]
    if not may_run(rank) or rank.silent_since is not None:
        return Transition(task)
    reason = f"agent of rank {rank.index} on {rank.node} is silent since {format_utc(event.since)}"
    line = Line("AgentSilent", reason, rank=rank.index)
    return Transition(
        with_run(task, with_rank(run, rank.index, silent_since=event.since)), (), (line,)
    )


def on_agent_heard(
    task: Task, run: Run, event: ev.AgentHeard, now: float, limits: Limits
) -> Transition:
    """Store that a silent agent has sent a message again."""
    rank = run.ranks[event.rank]
    if rank.silent_since is None:
        return Transition(task)
    seconds = max(0.0, now - rank.silent_since)
    reason = f"agent of rank {rank.index} on {rank.node} is heard again after {seconds:.0f} s"
    line = Line("AgentHeard", reason, rank=rank.index)
    return Transition(with_run(task, with_rank(run, rank.index, silent_since=None)), (), (line,))
