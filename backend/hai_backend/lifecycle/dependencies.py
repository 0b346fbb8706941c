"""Tasks that go first: when one has ended, who waits for it is a step nearer, or will never start."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.formatting import listed
from hai_backend.domain.spec import AfterOutcome, AfterSpec
from hai_backend.domain.task import Outcome, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.run_end import finished
from hai_backend.lifecycle.transition import Line, Move

_WANTED = {AfterOutcome.SUCCEEDED: Outcome.SUCCEEDED, AfterOutcome.FAILED: Outcome.FAILED}


def met(after: AfterSpec, outcome: Outcome) -> bool:
    """Whether it has ended as it had to."""
    return after.outcome is AfterOutcome.ENDED or _WANTED[after.outcome] is outcome


def unmet(after: AfterSpec, outcome: Outcome) -> str:
    """Why a task will never start."""
    return f"task {after.task} was to have {after.outcome} first, and ended {outcome.value}"


def _wanted(task: Task, first: int) -> AfterSpec:
    """What was handed on may end as it likes."""
    known = (after for after in task.spec.options.after if after.task == first)
    return next(known, AfterSpec(first, AfterOutcome.ENDED))


def ended(task: Task, event: ev.PredecessorEnded, now: float) -> Move:
    """The task, less one that it waits for. Its own wait begins when it waits for none any more.

    One that was cancelled while it waited hands on what it waited for, however that ends: who was to come behind it,
    as a clean-up or the next in a lane, does not come before what was to come before it.
    """
    if event.task not in task.awaited:
        return Move(task)
    after = _wanted(task, event.task)
    left = tuple(other for other in task.awaited if other != event.task)
    if not met(after, event.outcome):
        return _never(replace(task, awaited=left), unmet(after, event.outcome), now)
    line = Line(
        "PredecessorEnded", f"task {event.task} has ended {event.outcome.value}{_more(event)}"
    )
    left = tuple(dict.fromkeys((*left, *event.awaited)))  # thousands may be handed on
    progress = task.progress if left else replace(task.progress, queued_at=now)
    return Move(replace(task, awaited=left, progress=progress), (), (line,))


def _never(task: Task, reason: str, now: float) -> Move:
    line = Line("TaskFinished", f"{Outcome.CANCELED.value}: {reason}")
    return Move(finished(task, Outcome.CANCELED, reason, now), (), (line,))


def _more(event: ev.PredecessorEnded) -> str:
    return f"; it still waited for task {listed(event.awaited)} to end" if event.awaited else ""
