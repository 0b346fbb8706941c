"""Rules for programs that yield or exit."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.progress import update_longest
from hai_backend.domain.spec import OnEnd, TaskType
from hai_backend.domain.task import Rank, RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.exit_codes import describe_exit_code
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.rules.run_end import with_back_off
from hai_backend.lifecycle.rules.transition import (
    Line,
    Transition,
    is_live,
    terminate,
    with_cause,
    with_line,
    with_rank,
    with_run,
)


def on_yielded(task: Task, run: Run, event: ev.Yielded, now: float, limits: Limits) -> Transition:
    """End the run after go_suspend() of one rank, even if the run was not asked to leave."""
    if run.state is RunState.RUNNING and run.stop_code:
        return Transition(task)  # the run is already ending for another reason
    code = StopCode.NONE if run.state is RunState.STOPPING else StopCode.INTERRUPT
    line = Line("Yielded", "the program has saved", "agent", event.rank)
    task = _with_save_time(task, run, now)
    return with_line(line, _end_after_yield(task, run, code, now, limits))


def _with_save_time(task: Task, run: Run, now: float) -> Task:
    """Store how long the program took to save. The agent of a dev container waits, and so tells nothing."""
    if run.acknowledged_at is None or task.spec.task_type is not TaskType.TRAINING:
        return task
    longest = update_longest(task.progress.longest_save, max(0.0, now - run.acknowledged_at))
    return replace(task, progress=replace(task.progress, longest_save=longest))


def _end_after_yield(
    task: Task, run: Run, code: StopCode, now: float, limits: Limits
) -> Transition:
    """End a run that has yielded. If it was not asked to, its next start is delayed: it may yield at every start."""
    if not run.stop_code:
        task = with_back_off(task, run, limits.back_off(1), now)
    return terminate(task, replace(run, yielded=True), code, "the program yielded", now, limits)


def on_exited(
    task: Task, run: Run, event: ev.ProgramExited, now: float, limits: Limits
) -> Transition:
    """Store the exit of a program, and apply the policies of its task."""
    if not is_live(run.ranks[event.rank]):
        return Transition(task)  # the agent repeats the event after a reconnect
    state = _exit_state(task, run, event)
    run = with_rank(
        run,
        event.rank,
        state=state,
        exit_code=event.exit_code,
        last_lines=event.last_lines if event.exit_code else "",
        ended_at=now,
    )
    line = _exit_line(event, by_platform=state is RankState.STOPPED_TERMINATING)
    return with_line(line, _after_exit(task, run, event, now, limits))


def _exit_line(event: ev.ProgramExited, *, by_platform: bool) -> Line:
    return Line(
        "ProgramExited",
        describe_exit_code(event.exit_code, by_platform=by_platform),
        "agent",
        event.rank,
    )


def _exit_state(task: Task, run: Run, event: ev.ProgramExited) -> RankState:
    leaving = run.state in (RunState.SUSPENDING, RunState.STOPPING)
    by_signal = event.exit_code in (128 + 15, 128 + 10) or bool(task.spec.options.suspend_signal)
    if (
        event.yielded
        or (leaving and by_signal)
        or (run.state is RunState.STOPPING and event.exit_code)
    ):
        return RankState.STOPPED_TERMINATING
    if event.exit_code == 0:
        return RankState.SUCCEEDED_TERMINATING
    return RankState.FAILED_TERMINATING


def _after_exit(
    task: Task, run: Run, event: ev.ProgramExited, now: float, limits: Limits
) -> Transition:
    rank = run.ranks[event.rank]
    if event.yielded and not (run.state is RunState.RUNNING and run.stop_code):
        return _end_after_yield(task, run, StopCode.INTERRUPT, now, limits)
    if rank.state is RankState.FAILED_TERMINATING:
        return _failed(task, run, rank, now, limits)
    if rank.state is RankState.SUCCEEDED_TERMINATING:
        return _succeeded(task, run, rank, now, limits)
    return _end_if_none_live(task, run, now, limits)


def on_exited_while_terminating(
    task: Task, run: Run, event: ev.ProgramExited, now: float, limits: Limits
) -> Transition:
    """Count a program that the platform has ended as stopped, whatever its exit code is."""
    if not is_live(run.ranks[event.rank]):
        return Transition(task)
    run = with_rank(
        run,
        event.rank,
        state=RankState.STOPPED_TERMINATING,
        exit_code=event.exit_code,
        ended_at=now,
    )
    return Transition(with_run(task, run), (), (_exit_line(event, by_platform=True),))


def _failed(task: Task, run: Run, rank: Rank, now: float, limits: Limits) -> Transition:
    reason = f"rank {rank.index} on {rank.node} failed: {describe_exit_code(rank.exit_code or 0)}"
    verdict = decide_by_policy(task, run, task.spec.policies.on_pod_failed)
    if verdict is OnEnd.IGNORE:
        return _end_if_none_live(task, run, now, limits)
    if verdict is OnEnd.COMPLETE:
        return terminate(task, run, StopCode.STOP, f"{reason}; policy: complete", now, limits)
    code = StopCode.FAILED if verdict is OnEnd.FAIL else StopCode.FAILED | StopCode.HOOK_RESTART
    if not any(is_live(r) for r in run.ranks):
        return terminate(task, run, code, reason, now, limits)
    if run.stop_code & StopCode.FAILED:
        return Transition(with_run(task, run))
    return Transition(with_run(task, with_cause(run, code, reason), deadline=now + limits.gather))


def decide_by_policy(task: Task, run: Run, policy: OnEnd) -> OnEnd:
    """Return the policy for a rank that has failed or is lost, or IGNORE while enough ranks of the gang are
    available.
    """
    least = task.spec.policies.min_available
    available = sum(is_live(r) or r.exit_code == 0 for r in run.ranks)
    return OnEnd.IGNORE if least and available >= least else policy


def _succeeded(task: Task, run: Run, rank: Rank, now: float, limits: Limits) -> Transition:
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


def _end_if_none_live(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    if any(is_live(r) for r in run.ranks):
        return Transition(with_run(task, run))
    if run.state is RunState.RUNNING:
        return terminate(task, run, StopCode.STOP, "all programs have ended", now, limits)
    return terminate(task, run, StopCode.NONE, run.reason, now, limits)
