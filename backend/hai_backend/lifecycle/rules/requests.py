"""Rules for requests of people and of the scheduler: stop, suspend, resume, change, place."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.errors import Conflict, InvalidTransition
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension, add_suspension
from hai_backend.domain.task import Outcome, Rank, Run, RunState, StopCode, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import Launch
from hai_backend.lifecycle.limits import Limits, time_limit_at
from hai_backend.lifecycle.rules import dependencies
from hai_backend.lifecycle.rules.run_end import as_finished
from hai_backend.lifecycle.rules.transition import (
    Line,
    Transition,
    ask_to_stop,
    ask_to_suspend,
    terminate,
)

_CODES = {
    Outcome.SUCCEEDED: StopCode.MANUAL_SUCCEEDED,
    Outcome.FAILED: StopCode.MANUAL_FAILED,
    Outcome.STOPPED: StopCode.MANUAL_STOP,
}


def apply(task: Task, event: ev.TaskRequest, now: float, limits: Limits) -> Transition:
    """Apply a request. Raises Conflict if the state of the task does not allow it."""
    if task.state is TaskState.FINISHED:
        return _apply_to_finished(task, event)
    match event:
        case ev.StopAsked():
            return _stop(task, event, now, limits)
        case ev.SuspendAsked():
            return _suspend(task, event, now, limits)
        case ev.ResumeAsked():
            return Transition(replace(task, held=False, not_before=0.0))
        case ev.PredecessorEnded():
            return dependencies.remove_dependency(task, event, now)
        case ev.Renewed(by=by):
            return _renewed(task, by, now)
        case ev.PriorityChanged(priority=priority):
            return _priority(task, priority, event.by)
        case ev.Moved(custom_rank=custom_rank):
            return Transition(replace(task, custom_rank=custom_rank))
        case ev.Labelled(tags=tags, starred=starred):
            return Transition(replace(task, tags=tags, starred=starred))
        case ev.RunPlaced():
            return _place_run(task, event, now, limits)


def _apply_to_finished(task: Task, event: ev.TaskRequest) -> Transition:
    """Apply a request to a finished task. Only labels can be changed."""
    match event:
        case ev.StopAsked():
            return Transition(task)  # it has ended already
        case ev.PredecessorEnded():
            return Transition(task)
        case ev.Labelled(tags=tags, starred=starred):
            return Transition(replace(task, tags=tags, starred=starred))
        case ev.RunPlaced():
            raise InvalidTransition(f"task {task.id} is finished and cannot be placed")
        case _:
            raise Conflict(
                f"task {task.id} ({task.spec.name}) is finished ({task.outcome});"
                " submit it again with `hai describe ID | hai run -`",
                reason="TASK_FINISHED",
            )


def _stop(task: Task, event: ev.StopAsked, now: float, limits: Limits) -> Transition:
    """Stop a task: finish it if it has no run, else ask its run to save and leave, or end the run."""
    run = task.run
    if task.waiting:
        outcome = event.outcome or (Outcome.CANCELED if run is None else Outcome.STOPPED)
        return Transition(as_finished(task, outcome, _stop_reason(event), now))
    assert run is not None
    if task.wanted_outcome is not None:
        return Transition(task)
    outcome = event.outcome or Outcome.STOPPED
    task = replace(task, wanted_outcome=outcome, reason=_stop_reason(event))
    code = _CODES[outcome]
    if run.state is RunState.RUNNING and not run.stop_code:
        return ask_to_stop(
            task, run, code, Line("StopAsked", _stop_reason(event), event.by), now, limits
        )
    if run.state in (RunState.CREATED, RunState.BUILDING):
        return terminate(task, run, code, _stop_reason(event), now, limits)
    state = RunState.STOPPING if run.state is RunState.SUSPENDING else run.state
    return Transition(replace(task, run=replace(run, state=state, stop_code=run.stop_code | code)))


def _stop_reason(event: ev.StopAsked) -> str:
    marked = f" and marked {event.outcome}" if event.outcome else ""
    return event.reason or f"stopped by {event.by}{marked}"


def _suspend(task: Task, event: ev.SuspendAsked, now: float, limits: Limits) -> Transition:
    not_before = max(task.not_before, now + event.delay if event.delay else 0.0)
    task = replace(task, held=task.held or event.hold, not_before=not_before)
    run = task.run
    if task.waiting or run is None:
        return Transition(task)
    leaving = replace(run, suspended_for=event.for_task)
    if run.state is RunState.RUNNING and not run.stop_code:
        line = Line("SuspendAsked", event.reason, event.by)
        return ask_to_suspend(_with_suspension(task, event, now), leaving, line, now, limits)
    if run.state in (RunState.CREATED, RunState.BUILDING):
        task = _with_suspension(task, event, now)
        return terminate(task, leaving, StopCode.INTERRUPT, event.reason, now, limits)
    return Transition(task)


def _with_suspension(task: Task, event: ev.SuspendAsked, now: float) -> Task:
    """Store the suspension, because the scheduler protects runs of tasks that it has suspended before."""
    if not event.for_task:
        return task
    new = Suspension(now, event.for_task, event.higher)
    suspensions = add_suspension(task.progress.suspensions, new)
    return replace(task, progress=replace(task.progress, suspensions=suspensions))


def _renewed(task: Task, by: str, now: float) -> Transition:
    run, lifetime = task.run, task.spec.options.lifetime
    if not lifetime:
        return Transition(task)
    if task.waiting or run is None or run.state is not RunState.RUNNING or run.stop_code:
        raise Conflict(
            f"task {task.id} is not running; its lifetime begins anew when it starts",
            reason="NOT_RUNNING",
        )
    run = replace(run, deadline=time_limit_at(task, run, now))
    line = Line("Renewed", f"by {by}, for {lifetime} s from now on", by)
    return Transition(replace(task, run=run), (), (line,))


def _priority(task: Task, priority: Priority, by: str) -> Transition:
    old, new = task.priority.name, priority.name
    return Transition(
        replace(task, priority=priority),
        (),
        (Line("PriorityChanged", f"{old} to {new} by {by}", by),),
    )


def _place_run(task: Task, event: ev.RunPlaced, now: float, limits: Limits) -> Transition:
    """Create the next run of a task on the nodes that the scheduler has chosen."""
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
    return Transition(task, (launch,), (line,), run=run.number)


def _ranks(task: Task, event: ev.RunPlaced) -> tuple[Rank, ...]:
    names, gpus = _role_names(task), event.gpus or ((),) * len(event.nodes)
    return tuple(Rank(i, node, role=names[i], gpus=gpus[i]) for i, node in enumerate(event.nodes))


def _role_names(task: Task) -> list[str]:
    names = [role.name for role in task.spec.roles for _ in range(role.count)]
    return names or [""] * task.node_count
