"""One step in the life of a task: `step(task, event, now) -> Step`. Pure; time is an argument.

TABLE is the whole truth about runs: which event is handled how in which state. A pair that stands in neither
TABLE nor IGNORED is a bug, and its error tells the task's story. The rules stand in running.py, exits.py, failures.py,
agent_silence.py and deadlines.py; what people and the scheduler ask in requests.py; the end of a run in run_end.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, get_args

from hai_backend.domain.errors import InvalidTransition
from hai_backend.domain.task import Run, RunState, Task, TaskEvent, TaskState
from hai_backend.lifecycle import agent_silence, deadlines, exits, failures, requests, running
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import Instruction
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.lifecycle.transition import Move, nothing


@dataclass(frozen=True, slots=True)
class Step:
    """The task afterwards (the same object if nothing changed), its timeline's new lines, and what must be done."""

    task: Task
    events: tuple[TaskEvent, ...] = ()
    instructions: tuple[Instruction, ...] = ()


Handler = Callable[[Task, Run, Any, float, Limits], Move]

_NOT_STARTED = (RunState.CREATED, RunState.BUILDING)
_ASKED = (RunState.SUSPENDING, RunState.STOPPING)
_STARTED = (RunState.RUNNING, *_ASKED)
_ALIVE = (*_NOT_STARTED, *_STARTED)

TABLE: dict[tuple[RunState, type], Handler] = {
    (RunState.CREATED, ev.RunLaunched): running.launched,
    **{(s, ev.RankAttached): running.attached for s in _NOT_STARTED},
    **{(s, ev.ProgramStarted): running.program_started for s in _STARTED},
    **{(s, ev.SuspendAcknowledged): running.acknowledged for s in _ASKED},
    **{(s, ev.Yielded): exits.yielded for s in _STARTED},
    **{(s, ev.ProgramExited): exits.exited for s in _STARTED},
    (RunState.TERMINATING, ev.ProgramExited): exits.exited_when_told,
    **{(s, ev.StartFailed): failures.start_failed for s in _ALIVE},
    **{(s, ev.WatchdogFired): failures.watchdog_fired for s in _STARTED},
    **{(s, ev.NodeReported): failures.node_reported for s in _STARTED},
    **{(s, ev.LaunchFailed): failures.launch_failed for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.RankGone): failures.gone for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.NodeLost): failures.node_lost for s in (*_ALIVE, RunState.TERMINATING)},
    **{
        (s, ev.WholeLifeStateChanged): running.state_changed
        for s in (*_STARTED, RunState.TERMINATING)
    },
    **{(s, ev.AgentSilent): agent_silence.silent for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.AgentHeard): agent_silence.heard for s in (*_ALIVE, RunState.TERMINATING)},
    **{(s, ev.Ticked): deadlines.built_too_long for s in _NOT_STARTED},
    (RunState.RUNNING, ev.Ticked): deadlines.time_is_up,
    **{(s, ev.Ticked): deadlines.asked_too_long for s in _ASKED},
    (RunState.TERMINATING, ev.Ticked): deadlines.end_by_force,
}

IGNORED: frozenset[tuple[RunState, type]] = frozenset(
    {
        # said twice after a restart
        *((s, ev.RunLaunched) for s in RunState if s is not RunState.CREATED),
        *((s, ev.RankAttached) for s in (*_STARTED, RunState.TERMINATING)),  # reconnected
        (RunState.TERMINATING, ev.ProgramStarted),  # crossed our word to end
        (RunState.RUNNING, ev.SuspendAcknowledged),  # a repeated acknowledgement
        (RunState.TERMINATING, ev.SuspendAcknowledged),
        (RunState.TERMINATING, ev.Yielded),
        (RunState.TERMINATING, ev.StartFailed),
        (RunState.TERMINATING, ev.WatchdogFired),
        # another rank has reported, or the run leaves anyway
        *((s, ev.NodeReported) for s in (*_NOT_STARTED, RunState.TERMINATING)),
        *((RunState.ENDED, e) for e in get_args(ev.RunEvent)),  # late
    }
)


def step(task: Task, event: ev.Event, now: float, limits: Limits = DEFAULTS) -> Step:
    """Apply one event. Raises InvalidTransition for a pair without a rule, Conflict for an ask that makes no sense."""
    if isinstance(event, get_args(ev.TaskAsk)):
        return _as_step(task, event, requests.answer(task, event, now, limits), now)
    run = task.run
    if run is None or run.number != event.run or task.state is not TaskState.RUNNING:  # type: ignore[union-attr]
        return Step(task)
    if (run.state, type(event)) in IGNORED:
        return Step(task)
    handler = TABLE.get((run.state, type(event)))
    if handler is None:
        raise InvalidTransition(_story(task, run, event))
    return _as_step(task, event, handler(task, run, event, now, limits), now)


def steps(task: Task, happened: Iterable[ev.Event], now: float, limits: Limits = DEFAULTS) -> Step:
    """Apply several events, one after the other, as one change. Raises what `step` raises."""
    made = Step(task)
    for event in happened:
        next_ = step(made.task, event, now, limits)
        lines = (*made.events, *next_.events)
        made = Step(next_.task, lines, (*made.instructions, *next_.instructions))
    if made.task is task:
        return made
    return replace(made, task=replace(made.task, revision=task.revision + 1))


def _as_step(before: Task, event: ev.Event, move: Move, now: float) -> Step:
    if move.task == before:
        return Step(before, (), move.instructions)
    run = getattr(
        event, "run", before.run.number if before.run and before.state is TaskState.RUNNING else 0
    )
    lines = () if move.silent else move.lines or (nothing(event),)
    events = tuple(
        TaskEvent(now, line.actor, line.kind, line.reason, move.run or run, line.rank)
        for line in lines
    )
    return Step(replace(move.task, revision=before.revision + 1), events, move.instructions)


def _story(task: Task, run: Run, event: ev.Event) -> str:
    ranks = ", ".join(f"{r.index}:{r.state.value}" for r in run.ranks)
    return (
        f"{type(event).__name__} has no rule in {run.state.value} (task {task.id} {task.state.value}, run {run.number},"
        f" code {int(run.stop_code)}, ranks {ranks}): {event}"
    )
