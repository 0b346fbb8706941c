"""One step in the life of a task: `step(task, event, now) -> Step`. Pure; time is an argument.

TABLE says which rule handles which event in which state of a run. A pair that is in neither TABLE nor IGNORED is a bug,
and raises an error with the state of the task. The rules are in lifecycle/rules: running.py, exits.py, failures.py and
deadlines.py for events of a run, requests.py for requests of people and of the scheduler, run_end.py for the end of a
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, get_args

from hai_backend.domain.errors import InvalidTransition
from hai_backend.domain.task import Run, RunState, Task, TaskEvent, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import Instruction
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.lifecycle.rules import deadlines, exits, failures, requests, running
from hai_backend.lifecycle.rules.transition import Transition, default_line


@dataclass(frozen=True, slots=True)
class Step:
    """The task after an event (the same object if nothing changed), new events of its timeline, and instructions."""

    task: Task
    events: tuple[TaskEvent, ...] = ()
    instructions: tuple[Instruction, ...] = ()


Handler = Callable[[Task, Run, Any, float, Limits], Transition]

_NOT_STARTED = (RunState.CREATED, RunState.BUILDING)
_SUSPENDING = (RunState.SUSPENDING, RunState.STOPPING)
_STARTED = (RunState.RUNNING, *_SUSPENDING)
_ALIVE = (*_NOT_STARTED, *_STARTED)

TABLE: dict[tuple[RunState, type], Handler] = {
    (RunState.CREATED, ev.RunLaunched): running.on_launched,
    **{(s, ev.RankAttached): running.on_attached for s in _NOT_STARTED},
    **{(s, ev.ProgramStarted): running.on_program_started for s in _STARTED},
    **{(s, ev.SuspendAcknowledged): running.on_acknowledged for s in _SUSPENDING},
    **{(s, ev.SaveProgressed): running.on_save_progressed for s in _SUSPENDING},
    **{(s, ev.CheckpointLost): running.on_checkpoint_lost for s in _STARTED},
    (RunState.RUNNING, ev.CheckpointLoaded): running.on_checkpoint_loaded,
    **{(s, ev.Yielded): exits.on_yielded for s in _STARTED},
    **{(s, ev.ProgramExited): exits.on_exited for s in _STARTED},
    (RunState.TERMINATING, ev.ProgramExited): exits.on_exited_while_terminating,
    **{(s, ev.StartFailed): failures.on_start_failed for s in _ALIVE},
    **{(s, ev.WatchdogFired): failures.on_watchdog_fired for s in _STARTED},
    **{(s, ev.NodeReported): failures.on_node_reported for s in _STARTED},
    **{(s, ev.LaunchFailed): failures.on_launch_failed for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.RankGone): failures.on_rank_gone for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.NodeLost): failures.on_node_lost for s in (*_ALIVE, RunState.TERMINATING)},
    **{
        (s, ev.WholeLifeStateChanged): running.on_whole_life_state_changed
        for s in (*_STARTED, RunState.TERMINATING)
    },
    **{(s, ev.AgentSilent): failures.on_agent_silent for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.AgentHeard): failures.on_agent_heard for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.Ticked): deadlines.check_build_deadline for s in _NOT_STARTED},
    (RunState.RUNNING, ev.Ticked): deadlines.check_time_limit,
    **{(s, ev.Ticked): deadlines.check_suspend_deadline for s in _SUSPENDING},
    (RunState.TERMINATING, ev.Ticked): deadlines.check_kill_deadline,
}

IGNORED: frozenset[tuple[RunState, type]] = frozenset(
    {
        # repeated after a restart
        *((s, ev.RunLaunched) for s in RunState if s is not RunState.CREATED),
        *((s, ev.RankAttached) for s in (*_STARTED, RunState.TERMINATING)),  # reconnected
        (RunState.TERMINATING, ev.ProgramStarted),  # sent before the program was told to end
        (RunState.RUNNING, ev.SuspendAcknowledged),  # a repeated acknowledgement
        (RunState.TERMINATING, ev.SuspendAcknowledged),
        (
            RunState.RUNNING,
            ev.SaveProgressed,
        ),  # the node, and not the server, asked the rank to leave
        (RunState.TERMINATING, ev.SaveProgressed),
        (RunState.TERMINATING, ev.CheckpointLost),
        # the time after the request to leave counts as leaving anyway
        *((s, ev.CheckpointLoaded) for s in (*_SUSPENDING, RunState.TERMINATING)),
        (RunState.TERMINATING, ev.Yielded),
        (RunState.TERMINATING, ev.StartFailed),
        (RunState.TERMINATING, ev.WatchdogFired),
        # another rank has reported, or the run leaves anyway
        *((s, ev.NodeReported) for s in (*_NOT_STARTED, RunState.TERMINATING)),
        *((RunState.ENDED, e) for e in get_args(ev.RunEvent)),  # late
    }
)


def step(task: Task, event: ev.Event, now: float, limits: Limits = DEFAULTS) -> Step:
    """Apply one event.

    Raises InvalidTransition for a pair without a rule, and Conflict for a request that the task cannot meet.
    """
    if isinstance(event, get_args(ev.TaskRequest)):
        return _as_step(task, event, requests.apply(task, event, now, limits), now)
    run = task.run
    if run is None or run.number != event.run or task.state is not TaskState.RUNNING:  # type: ignore[union-attr]
        return Step(task)
    if (run.state, type(event)) in IGNORED:
        return Step(task)
    handler = TABLE.get((run.state, type(event)))
    if handler is None:
        raise InvalidTransition(_describe(task, run, event))
    return _as_step(task, event, handler(task, run, event, now, limits), now)


def steps(task: Task, events: Iterable[ev.Event], now: float, limits: Limits = DEFAULTS) -> Step:
    """Apply several events, one after the other, as one change. Raises what `step` raises."""
    result = Step(task)
    for event in events:
        next_ = step(result.task, event, now, limits)
        lines = (*result.events, *next_.events)
        result = Step(next_.task, lines, (*result.instructions, *next_.instructions))
    if result.task is task:
        return result
    return replace(result, task=replace(result.task, revision=task.revision + 1))


def _as_step(before: Task, event: ev.Event, transition: Transition, now: float) -> Step:
    """Convert the result of a rule: number the revision, and make timeline events from the lines."""
    if transition.task == before and not transition.record:
        return Step(before, (), transition.instructions)
    run = getattr(
        event, "run", before.run.number if before.run and before.state is TaskState.RUNNING else 0
    )
    lines = () if transition.silent else transition.lines or (default_line(event),)
    events = tuple(
        TaskEvent(now, line.actor, line.kind, line.reason, transition.run or run, line.rank)
        for line in lines
    )
    return Step(
        replace(transition.task, revision=before.revision + 1), events, transition.instructions
    )


def _describe(task: Task, run: Run, event: ev.Event) -> str:
    """Describe a pair without a rule, with the state of the task."""
    ranks = ", ".join(f"{r.index}:{r.state.value}" for r in run.ranks)
    return (
        f"{type(event).__name__} has no rule in {run.state.value} (task {task.id} {task.state.value}, run {run.number},"
        f" code {int(run.stop_code)}, ranks {ranks}): {event}"
    )
