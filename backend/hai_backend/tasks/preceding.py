"""Tasks that go first: when one has ended, who waits for it is a step nearer, or will never start."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.spec import AfterOutcome, AfterSpec
from hai_backend.domain.task import Outcome, Task
from hai_backend.tasks import events as ev
from hai_backend.tasks.ending import finished
from hai_backend.tasks.moves import Line, Move

_WANTED = {AfterOutcome.SUCCEEDED: Outcome.SUCCEEDED, AfterOutcome.FAILED: Outcome.FAILED}


def met(after: AfterSpec, outcome: Outcome) -> bool:
    """Whether it has ended as it had to."""
    return after.outcome is AfterOutcome.ENDED or _WANTED[after.outcome] is outcome


def unmet(after: AfterSpec, outcome: Outcome) -> str:
    """Why a task will never start."""
    return f"task {after.task} was to have {after.outcome} first, and ended {outcome.value}"


def ended(task: Task, event: ev.PredecessorEnded, now: float) -> Move:
    """The task, less one that it waits for. Its own wait begins when it waits for none any more."""
    if event.task not in task.awaited:
        return Move(task)
    after = next(each for each in task.spec.options.after if each.task == event.task)
    if not met(after, event.outcome):
        reason = unmet(after, event.outcome)
        line = Line("TaskFinished", f"{Outcome.CANCELED.value}: {reason}")
        return Move(finished(task, Outcome.CANCELED, reason, now), (), (line,))
    left = tuple(other for other in task.awaited if other != event.task)
    progress = task.progress if left else replace(task.progress, queued_at=now)
    line = Line("PredecessorEnded", f"task {event.task} has ended {event.outcome.value}")
    return Move(replace(task, awaited=left, progress=progress), (), (line,))
