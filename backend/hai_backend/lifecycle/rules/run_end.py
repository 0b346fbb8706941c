"""Decides what becomes of a task when the last rank of its run is gone."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.task import Outcome, RankState, Run, RunState, StopCode, Task, TaskState
from hai_backend.lifecycle import accounting
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.rules.transition import Line, Transition, with_run
from hai_backend.lifecycle.saving import describe_next_protection


def end_if_all_gone(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    """End the run if every rank is gone, so that its nodes are free."""
    if not all(r.state.terminated for r in run.ranks):
        return Transition(with_run(task, run))
    lasted = max(0.0, now - run.started_at) if run.started_at is not None else 0.0
    run = replace(run, state=RunState.ENDED, ended_at=now, deadline=None)
    task = replace(task, run=run, run_seconds=task.run_seconds + lasted)
    transition = _decide(task, run, now, limits)
    ended = accounting.record_end(transition.task, run, now)
    return replace(
        transition, task=ended, lines=(*transition.lines, *_protection_lines(task, ended))
    )


def _protection_lines(before: Task, task: Task) -> tuple[Line, ...]:
    """Return a line if the next run of the task is protected because this one was suspended without progress."""
    count = task.progress.unsaved_suspensions
    if task.state is not TaskState.SUSPENDED or count == before.progress.unsaved_suspensions:
        return ()
    reason = describe_next_protection(count)
    return (Line("TaskProtected", reason, "scheduler"),) if reason else ()


def _decide(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    """Decide by the request of a person, else by success of all ranks, else by the strongest cause."""
    code = run.stop_code
    if task.wanted_outcome is not None:
        return _finish(task, task.wanted_outcome, task.reason, now)
    if all(r.state is RankState.SUCCEEDED for r in run.ranks):
        return _finish(task, Outcome.SUCCEEDED, "all ranks succeeded", now)
    if code & StopCode.NODE_FAILURE:
        return _after_node_failure(task, run, now, limits)
    if code & StopCode.FAILED:
        return _after_failure(task, run, now, limits)
    if code & StopCode.TIMEOUT:
        return _finish(task, Outcome.FAILED, run.reason, now)
    if code & (StopCode.UNSCHEDULABLE | StopCode.INIT_FAILED):
        return _after_launch_failure(task, run, now, limits)
    if code & StopCode.STOP:  # a policy completed the task, even if the run was asked to leave
        return _finish(task, Outcome.SUCCEEDED, run.reason, now)
    if code & StopCode.INTERRUPT:
        task = replace(task, suspend_count=task.suspend_count + 1, launch_failure_count=0)
        return _requeue(task, run)
    if code & StopCode.HOOK_RESTART:
        return _requeue(with_back_off(task, run, limits.back_off(1), now), run)
    return _finish(task, Outcome.SUCCEEDED, run.reason, now)


def _after_node_failure(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    failures = task.node_failure_count + 1
    task = replace(task, node_failure_count=failures)
    if (
        run.stop_code & StopCode.HOOK_RESTART
    ):  # the program reported the node, and may report every node
        task = with_back_off(task, run, limits.back_off(failures), now)
    return _requeue(task, run)


def with_back_off(task: Task, run: Run, seconds: float, now: float) -> Task:
    """Delay the next start until `seconds` after the last one, so that runs that end at once do not loop."""
    earliest = min(run.started_at or run.created_at, now) + seconds
    return replace(task, not_before=max(task.not_before, earliest))


def _after_failure(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    failures = task.failure_count + 1
    task = replace(task, failure_count=failures)
    allowed = task.spec.options.max_retries
    if failures > allowed and not run.stop_code & StopCode.HOOK_RESTART:
        tries = f" ({failures} failures, max_retries {allowed})" if allowed else ""
        return _finish(task, Outcome.FAILED, run.reason + tries, now)
    return _requeue(replace(task, not_before=now + limits.back_off(failures)), run)


def _after_launch_failure(task: Task, run: Run, now: float, limits: Limits) -> Transition:
    if (
        not run.stop_code & StopCode.INIT_FAILED
    ):  # a node refused it, which is not a fault of the task
        return _requeue(replace(task, not_before=now + limits.back_off_first), run)
    failures = task.launch_failure_count + 1
    task = replace(task, launch_failure_count=failures)
    if failures >= limits.launch_tries:
        reason = f"{run.reason} ({failures} launches failed in a row)"
        return _finish(task, Outcome.FAILED, reason, now)
    return _requeue(replace(task, not_before=now + limits.back_off(failures)), run)


def _requeue(task: Task, run: Run) -> Transition:
    task = replace(task, state=TaskState.SUSPENDED, reason=run.reason)
    return Transition(
        task, (), (Line("RunEnded", run.reason), Line("TaskSuspended", _requeued_text(task)))
    )


def _requeued_text(task: Task) -> str:
    return "held until it is resumed" if task.held else "back in the queue at its old position"


def as_finished(task: Task, outcome: Outcome, reason: str, now: float) -> Task:
    """Return the task in its final state."""
    return replace(
        task,
        state=TaskState.FINISHED,
        outcome=outcome,
        reason=reason,
        finished_at=now,
        held=False,
        not_before=0.0,
    )


def _finish(task: Task, outcome: Outcome, reason: str, now: float) -> Transition:
    task = as_finished(task, outcome, reason, now)
    lines = (
        Line("RunEnded", task.run.reason if task.run else ""),
        Line("TaskFinished", f"{outcome.value}: {reason}"),
    )
    return Transition(task, (), lines)
