"""Rules for dependencies: when a task has ended, tasks that depend on it may start or are canceled."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.formatting import format_list
from hai_backend.domain.spec import AfterOutcome, AfterSpec
from hai_backend.domain.task import Outcome, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.rules.run_end import as_finished
from hai_backend.lifecycle.rules.transition import Line, Transition

_OUTCOMES = {AfterOutcome.SUCCEEDED: Outcome.SUCCEEDED, AfterOutcome.FAILED: Outcome.FAILED}


def is_met(after: AfterSpec, outcome: Outcome) -> bool:
    """Return whether the dependency allows the outcome."""
    return after.outcome is AfterOutcome.ENDED or _OUTCOMES[after.outcome] is outcome


def describe_unmet(after: AfterSpec, outcome: Outcome) -> str:
    """Say why a task with this dependency is canceled."""
    return f"task {after.task} was to have {after.outcome} first, and ended {outcome.value}"


def _awaited_outcome(task: Task, first: int) -> AfterSpec:
    """Return the dependency on a task. A dependency that was handed on allows any outcome."""
    matching = (after for after in task.spec.options.after if after.task == first)
    return next(matching, AfterSpec(first, AfterOutcome.ENDED))


def remove_dependency(task: Task, event: ev.PredecessorEnded, now: float) -> Transition:
    """Remove a dependency that has ended. The task begins to wait for nodes when it has no dependency left.

    A task that was canceled before it ran hands on its own dependencies, with any outcome. So a task that depends on
    it, such as a clean-up, does not run before the tasks on which the canceled task depended.
    """
    if event.task not in task.awaited:
        return Transition(task)
    after = _awaited_outcome(task, event.task)
    remaining = tuple(other for other in task.awaited if other != event.task)
    if not is_met(after, event.outcome):
        return _cancel(replace(task, awaited=remaining), describe_unmet(after, event.outcome), now)
    line = Line(
        "PredecessorEnded", f"task {event.task} has ended {event.outcome.value}{_handed_on(event)}"
    )
    remaining = tuple(dict.fromkeys((*remaining, *event.awaited)))  # thousands may be handed on
    progress = task.progress if remaining else replace(task.progress, queued_at=now)
    return Transition(replace(task, awaited=remaining, progress=progress), (), (line,))


def _cancel(task: Task, reason: str, now: float) -> Transition:
    line = Line("TaskFinished", f"{Outcome.CANCELED.value}: {reason}")
    return Transition(as_finished(task, Outcome.CANCELED, reason, now), (), (line,))


def _handed_on(event: ev.PredecessorEnded) -> str:
    return (
        f"; it still waited for task {format_list(event.awaited)} to end" if event.awaited else ""
    )
