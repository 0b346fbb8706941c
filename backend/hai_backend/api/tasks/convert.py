"""Tasks, runs, ranks and events as messages. On the path of every answer about a task, so it does nothing twice."""

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
from hai_backend.lifecycle.exit_codes import meaning
from hai_backend.lifecycle.goodput import Goodput

_STATES = {s: pb.TaskState.Value(f"TASK_STATE_{s.name}") for s in TaskState}
_OUTCOMES = {o: pb.TaskOutcome.Value(f"TASK_OUTCOME_{o.name}") for o in Outcome}
_RUN_STATES = {s: pb.RunState.Value(f"RUN_STATE_{s.name}") for s in RunState}
_BY_SIGNAL = 128
_TOLD = (RankState.STOPPED_TERMINATING, RankState.STOPPED)
_RANK_STATES = {s: pb.RankState.Value(f"RANK_STATE_{s.name}") for s in RankState}
OUTCOMES_BY_NUMBER: dict[int, Outcome] = {int(number): o for o, number in _OUTCOMES.items()}


def task_to_proto(task: Task, wait: Wait | None = None, *, full: bool = False) -> pb.Task:
    """`wait` is the scheduler's last word on a waiting task; `full` adds the spec."""
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


def redacted(task: Task, wait: Wait | None) -> pb.Task:
    """What people see of a task in their queue that is not theirs: how big it is and where it stands."""
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
    """Why a task waits."""
    return pb.Waiting(
        reason=wait.why.value,
        message=wait.message,
        queue_place=wait.place,
        effective_priority=wait.priority,
        tasks_ahead=wait.ahead,
    )


def run_to_proto(run: Run) -> pb.Run:
    """One stay on nodes, with its ranks."""
    quiet = _quiet(run.ranks)
    return pb.Run(
        number=run.number,
        state=_RUN_STATES[run.state],
        stop_code=run.stop_code,
        ranks=[_rank_to_proto(rank, quiet) for rank in run.ranks],
        reason=run.reason,
        suspended_for=run.suspended_for,
        create_time=to_timestamp(run.created_at),
        start_time=to_timestamp(run.started_at),
        end_time=to_timestamp(run.ended_at),
        whole_life_state=run.whole_life_state,
        priority=run.priority,
        environment_lock=run.environment_lock if _has_started(run) else "",
    )


def _has_started(run: Run) -> bool:
    """Until then its lock is that of the run before."""
    return any(rank.started_at is not None for rank in run.ranks)


def _quiet(ranks: Sequence[Rank]) -> set[int]:
    """Whose last lines one message has no room for: when thousands fail together, those that failed first are told."""
    failed = [rank for rank in ranks if rank.last_lines]
    failed.sort(key=lambda rank: rank.ended_at or 0.0)
    chars = accumulate(len(rank.last_lines) for rank in failed)
    most = limits.LAST_LINES_CHARS
    return {rank.index for rank, until in zip(failed, chars, strict=True) if until > most}


def _rank_to_proto(rank: Rank, quiet: set[int]) -> pb.Rank:
    code, meant = _ended(rank)
    return pb.Rank(
        index=rank.index,
        node=rank.node,
        state=_RANK_STATES[rank.state],
        exit_code=code,
        exit_meaning=meant,
        role=rank.role,
        start_time=to_timestamp(rank.started_at),
        end_time=to_timestamp(rank.ended_at),
        last_lines="" if rank.index in quiet else rank.last_lines,
        silent_since_time=to_timestamp(rank.silent_since),
    )


def event_to_proto(sequence: int, event: TaskEvent) -> pb.TaskEvent:
    """One line of a timeline."""
    return pb.TaskEvent(
        sequence=sequence,
        time=to_timestamp(event.time),
        actor=event.actor,
        kind=event.kind,
        reason=event.reason,
        run=event.run,
        rank=event.rank,
    )


def _ended(rank: Rank) -> tuple[int | None, str]:
    """Exit code and its meaning. Agents say 143 of a program that was taken away before it began."""
    if rank.exit_code is None:
        return None, ""
    if rank.started_at is None and rank.exit_code > _BY_SIGNAL:
        return None, "never started"
    return rank.exit_code, meaning(rank.exit_code, by_platform=rank.state in _TOLD)


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
    )
