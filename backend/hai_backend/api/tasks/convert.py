"""Converts tasks, runs, ranks, events and goodput to messages. It must be fast: every task passes through it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from hai.v1 import task_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.tasks.convert_spec import spec_to_proto
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import (
    Outcome,
    Rank,
    RankState,
    Run,
    RunState,
    Task,
    TaskEvent,
    TaskState,
)
from hai_backend.lifecycle.exit_codes import describe_exit_code
from hai_backend.lifecycle.goodput import Goodput

_STATES = {s: pb.TaskState.Value(f"TASK_STATE_{s.name}") for s in TaskState}
_OUTCOMES = {o: pb.TaskOutcome.Value(f"TASK_OUTCOME_{o.name}") for o in Outcome}
_RUN_STATES = {s: pb.RunState.Value(f"RUN_STATE_{s.name}") for s in RunState}
_SIGNAL_BASE = 128  # an exit code above this number means that a signal ended the program
_STOPPED_STATES = (RankState.STOPPED_TERMINATING, RankState.STOPPED)
_RANK_STATES = {s: pb.RankState.Value(f"RANK_STATE_{s.name}") for s in RankState}
OUTCOMES_BY_NUMBER: dict[int, Outcome] = {int(number): o for o, number in _OUTCOMES.items()}


def task_to_proto(task: Task, wait: Wait | None = None, *, full: bool = False) -> pb.Task:
    """Convert a task. `wait` is why it waits, according to the last scheduling pass. `full` adds the spec."""
    spec, resource, run = task.spec, task.spec.resource, task.run
    return pb.Task(
        id=task.id,
        user=task.user,
        name=spec.name,
        task_type=spec.task_type.value,
        group=resource.group,
        zone=resource.zone,
        node_count=resource.node_count,
        state=_STATES[task.state],
        outcome=_OUTCOMES[task.outcome] if task.outcome else pb.TASK_OUTCOME_UNSPECIFIED,
        priority=task.priority,
        custom_rank=task.custom_rank,
        tags=task.tags,
        starred=task.starred,
        whole_life_state=task.whole_life_state,
        run_count=run.number if run else 0,
        suspend_count=task.suspend_count,
        failure_count=task.failure_count,
        node_failure_count=task.node_failure_count,
        held=task.held,
        run=run_to_proto(run) if run else None,
        waiting=wait_to_proto(wait) if wait and task.waiting else None,
        reason=task.reason,
        run_seconds=task.run_seconds,
        create_time=to_timestamp(task.created_at),
        start_time=to_timestamp(task.started_at),
        finish_time=to_timestamp(task.finished_at),
        not_before=to_timestamp(task.not_before or None),
        etag=str(task.revision),
        version=task.version,
        spec=spec_to_proto(spec) if full else None,
        awaited=task.awaited if task.waiting else (),
    )


def redacted_task_to_proto(task: Task, wait: Wait | None) -> pb.Task:
    """Convert a task in the queue that the caller may not see: only its owner, size, level and place."""
    resource = task.spec.resource
    return pb.Task(
        id=task.id,
        user=task.user,
        group=resource.group,
        zone=resource.zone,
        node_count=resource.node_count,
        state=_STATES[task.state],
        priority=task.priority,
        create_time=to_timestamp(task.created_at),
        waiting=pb.Waiting(queue_place=wait.place, effective_priority=wait.priority)
        if wait
        else None,
    )


def wait_to_proto(wait: Wait) -> pb.Waiting:

    return pb.Waiting(
        reason=wait.why.value,
        message=wait.message,
        queue_place=wait.place,
        effective_priority=wait.priority,
        tasks_ahead=wait.ahead,
    )


def run_to_proto(run: Run) -> pb.Run:
    without_last_lines = _ranks_without_last_lines(run.ranks)
    return pb.Run(
        number=run.number,
        state=_RUN_STATES[run.state],
        stop_code=run.stop_code,
        ranks=[_rank_to_proto(rank, without_last_lines) for rank in run.ranks],
        reason=run.reason,
        suspended_for=run.suspended_for,
        create_time=to_timestamp(run.created_at),
        start_time=to_timestamp(run.started_at),
        end_time=to_timestamp(run.ended_at),
        whole_life_state=run.whole_life_state,
        priority=run.priority,
        environment_lock=run.environment_lock if _has_started(run) else "",
        load_seconds=run.load_seconds,
        save_seconds=run.save_seconds,
        write_seconds=run.write_seconds,
    )


def _has_started(run: Run) -> bool:
    """Say whether a program of the run has started. Before that, the lock is that of the previous run."""
    return any(rank.started_at is not None for rank in run.ranks)


def _ranks_without_last_lines(ranks: Sequence[Rank]) -> set[int]:
    """Return the ranks whose last lines do not fit into the message. The ranks that failed first come first."""
    failed = [rank for rank in ranks if rank.last_lines]
    failed.sort(key=lambda rank: rank.ended_at or 0.0)
    totals = accumulate(len(rank.last_lines) for rank in failed)
    max_chars = limits.LAST_LINES_CHARS
    return {rank.index for rank, total in zip(failed, totals, strict=True) if total > max_chars}


def _rank_to_proto(rank: Rank, without_last_lines: set[int]) -> pb.Rank:
    code, code_meaning = _describe_exit(rank)
    return pb.Rank(
        index=rank.index,
        node=rank.node,
        state=_RANK_STATES[rank.state],
        exit_code=code,
        exit_meaning=code_meaning,
        role=rank.role,
        start_time=to_timestamp(rank.started_at),
        end_time=to_timestamp(rank.ended_at),
        last_lines="" if rank.index in without_last_lines else rank.last_lines,
        silent_since_time=to_timestamp(rank.silent_since),
    )


def event_to_proto(sequence: int, event: TaskEvent) -> pb.TaskEvent:
    return pb.TaskEvent(
        sequence=sequence,
        time=to_timestamp(event.time),
        actor=event.actor,
        kind=event.kind,
        reason=event.reason,
        run=event.run,
        rank=event.rank,
    )


def _describe_exit(rank: Rank) -> tuple[int | None, str]:
    """Return the exit code and its meaning. Agents report 143 for a program that was stopped before it started."""
    if rank.exit_code is None:
        return None, ""
    if rank.started_at is None and rank.exit_code > _SIGNAL_BASE:
        return None, "never started"
    return rank.exit_code, describe_exit_code(
        rank.exit_code, by_platform=rank.state in _STOPPED_STATES
    )


def goodput_to_proto(goodput: Goodput) -> pb.Goodput:
    return pb.Goodput(
        share=goodput.share,
        held_seconds=goodput.held_seconds,
        overhead_seconds=goodput.overhead_seconds,
        lost_seconds=goodput.lost_seconds,
        interruptions=goodput.interruptions,
        checkpoints=goodput.checkpoints,
        checkpoint_time=to_timestamp(goodput.saved_at),
        checkpoint_seconds=goodput.checkpoint_seconds,
        interval_seconds=goodput.interval_seconds,
        advised_interval_seconds=goodput.advised_seconds,
        between_interruptions_seconds=goodput.between_seconds,
        basis=goodput.basis,
        yields=goodput.yields,
        restart_seconds=goodput.restart_seconds,
        note=goodput.note,
        saving_seconds=goodput.saving_seconds,
        loading_seconds=goodput.loading_seconds,
    )
