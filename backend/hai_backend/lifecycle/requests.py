"""What people and the scheduler ask of a task, and what it answers."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.errors import Conflict, InvalidTransition
from hai_backend.domain.goodput_facts import Suspension, suspended
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Outcome, Rank, Run, RunState, StopCode, Task, TaskState
from hai_backend.lifecycle import dependencies
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import Launch
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.run_end import finished
from hai_backend.lifecycle.suspend import ask_to_stop, ask_to_suspend
from hai_backend.lifecycle.time_limits import end_of_time
from hai_backend.lifecycle.transition import Line, Move, terminate

_CODES = {
    Outcome.SUCCEEDED: StopCode.MANUAL_SUCCEEDED,
    Outcome.FAILED: StopCode.MANUAL_FAILED,
    Outcome.STOPPED: StopCode.MANUAL_STOP,
}


def answer(task: Task, event: ev.TaskAsk, now: float, limits: Limits) -> Move:
    """Apply an ask. Raises Conflict when the task is in no state for it."""
    if task.state is TaskState.FINISHED:
        return _answer_finished(task, event)
    match event:
        case ev.StopAsked():
            return _stop(task, event, now, limits)
        case ev.SuspendAsked():
            return _suspend(task, event, now, limits)
        case ev.ResumeAsked():
            return Move(replace(task, held=False, not_before=0.0))
        case ev.PredecessorEnded():
            return dependencies.ended(task, event, now)
        case ev.Renewed(by=by):
            return _renewed(task, by, now)
        case ev.PriorityChanged(priority=priority):
            return _priority(task, priority, event.by)
        case ev.Moved(custom_rank=custom_rank):
            return Move(replace(task, custom_rank=custom_rank))
        case ev.Labelled(tags=tags, starred=starred):
            return Move(replace(task, tags=tags, starred=starred))
        case ev.RunPlaced():
            return _place(task, event, now, limits)


def _answer_finished(task: Task, event: ev.TaskAsk) -> Move:
    match event:
        case ev.StopAsked():
            return Move(task)  # it has ended: that is what was wanted
        case ev.PredecessorEnded():
            return Move(task)
        case ev.Labelled(tags=tags, starred=starred):
            return Move(replace(task, tags=tags, starred=starred))
        case ev.RunPlaced():
            raise InvalidTransition(f"task {task.id} is finished and cannot be placed")
        case _:
            raise Conflict(
                f"task {task.id} ({task.spec.name}) is finished ({task.outcome});"
                " submit it again with `hai describe ID | hai run -`",
                reason="TASK_FINISHED",
            )


def _stop(task: Task, event: ev.StopAsked, now: float, limits: Limits) -> Move:
    run = task.run
    if task.waiting:
        outcome = event.outcome or (Outcome.CANCELED if run is None else Outcome.STOPPED)
        return Move(finished(task, outcome, _stop_reason(event), now))
    assert run is not None
    if task.wanted_outcome is not None:
        return Move(task)
    wanted = event.outcome or Outcome.STOPPED
    task = replace(task, wanted_outcome=wanted, reason=_stop_reason(event))
    code = _CODES[wanted]
    if run.state is RunState.RUNNING and not run.stop_code:
        return ask_to_stop(task, run, code, Line("StopAsked", _stop_reason(event), event.by), now)
    if run.state in (RunState.CREATED, RunState.BUILDING):
        return terminate(task, run, code, _stop_reason(event), now, limits)
    state = RunState.STOPPING if run.state is RunState.SUSPENDING else run.state
    return Move(replace(task, run=replace(run, state=state, stop_code=run.stop_code | code)))


def _stop_reason(event: ev.StopAsked) -> str:
    marked = f" and marked {event.outcome}" if event.outcome else ""
    return event.reason or f"stopped by {event.by}{marked}"


def _suspend(task: Task, event: ev.SuspendAsked, now: float, limits: Limits) -> Move:
    not_before = max(task.not_before, now + event.delay if event.delay else 0.0)
    task = replace(task, held=task.held or event.hold, not_before=not_before)
    run = task.run
    if task.waiting or run is None:
        return Move(task)
    leaving = replace(run, suspended_for=event.for_task)
    if run.state is RunState.RUNNING and not run.stop_code:
        line = Line("SuspendAsked", event.reason, event.by)
        return ask_to_suspend(_remember(task, event, now), leaving, line, now)
    if run.state in (RunState.CREATED, RunState.BUILDING):
        task = _remember(task, event, now)
        return terminate(task, leaving, StopCode.INTERRUPT, event.reason, now, limits)
    return Move(task)


def _remember(task: Task, event: ev.SuspendAsked, now: float) -> Task:
    """The scheduler protects whom it has suspended before."""
    if not event.for_task:
        return task
    new = Suspension(now, event.for_task, event.higher)
    known = suspended(task.progress.suspensions, new)
    return replace(task, progress=replace(task.progress, suspensions=known))


def _renewed(task: Task, by: str, now: float) -> Move:
    run, lifetime = task.run, task.spec.options.lifetime
    if not lifetime:
        return Move(task)
    if task.waiting or run is None or run.state is not RunState.RUNNING or run.stop_code:
        raise Conflict(
            f"task {task.id} is not running; its lifetime begins anew when it starts",
            reason="NOT_RUNNING",
        )
    run = replace(run, deadline=end_of_time(task, run, now))
    line = Line("Renewed", f"by {by}, for {lifetime} s from now on", by)
    return Move(replace(task, run=run), (), (line,))


def _priority(task: Task, priority: Priority, by: str) -> Move:
    old, new = task.priority.name, priority.name
    return Move(
        replace(task, priority=priority),
        (),
        (Line("PriorityChanged", f"{old} to {new} by {by}", by),),
    )


def _place(task: Task, event: ev.RunPlaced, now: float, limits: Limits) -> Move:
    if not task.waiting:
        raise InvalidTransition(f"task {task.id} is {task.state.value} and cannot be placed again")
    run = Run(
        number=task.run.number + 1 if task.run else 1,
        state=RunState.CREATED,
        ranks=_ranks(task, event),
        created_at=now,
        priority=event.priority,
        whole_life_state=task.whole_life_state,
        deadline=now + limits.build_within,
        environment_lock=task.run.environment_lock if task.run else "",
    )
    task = replace(task, state=TaskState.RUNNING, run=run, not_before=0.0, reason="")
    line = Line("RunPlaced", f"on {', '.join(event.nodes)}: {event.reason}", "scheduler")
    launch = Launch(run.number, tuple(range(len(run.ranks))))
    return Move(task, (launch,), (line,), run=run.number)


def _ranks(task: Task, event: ev.RunPlaced) -> tuple[Rank, ...]:
    names, gpus = _role_names(task), event.gpus or ((),) * len(event.nodes)
    return tuple(Rank(i, node, role=names[i], gpus=gpus[i]) for i, node in enumerate(event.nodes))


def _role_names(task: Task) -> list[str]:
    names = [role.name for role in task.spec.roles for _ in range(role.count)]
    return names or [""] * task.node_count
