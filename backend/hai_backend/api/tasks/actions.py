"""Checks of what people ask of a task that exists."""

from __future__ import annotations

import math

from hai.client.taskfile.validation import tag_violations
from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.tasks.convert import OUTCOMES_BY_NUMBER
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import Exhausted, Invalid, Violation
from hai_backend.domain.task import Outcome, Task

_MARKS = (Outcome.SUCCEEDED, Outcome.FAILED)
_REMEMBERED = 1000  # tasks; older entries are dropped beyond that


class PriorityPace:
    """Users change the priority of one task at most every ten seconds; each change moves the whole queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed: dict[int, float] = {}

    def check(self, identity: Identity, task_id: int) -> None:
        """Raise Exhausted, saying when to try again."""
        left = self._changed.get(task_id, -math.inf) + limits.PRIORITY_SECONDS - self._clock.now()
        was_set_back = left > limits.PRIORITY_SECONDS
        if left > 0 and not was_set_back and not identity.operates:
            raise Exhausted(
                f"the priority of task {task_id} was changed less than {limits.PRIORITY_SECONDS:g} s ago; "
                f"try again in {left:.1f} s",
                retry_after=left,
            )

    def changed(self, task_id: int) -> None:
        """Remember a change."""
        now = self._clock.now()
        if len(self._changed) > _REMEMBERED:
            recent = now - limits.PRIORITY_SECONDS
            self._changed = {t: when for t, when in self._changed.items() if when > recent}
        self._changed[task_id] = now


def checked_outcome(number: int) -> Outcome | None:
    """How a stopped task is marked; None: as it was."""
    if number == task_pb2.TASK_OUTCOME_UNSPECIFIED:
        return None
    outcome = OUTCOMES_BY_NUMBER.get(number)
    if outcome not in _MARKS:
        raise Invalid((Violation("outcome", "must be SUCCEEDED, FAILED or unset"),))
    return outcome


def checked_delay(seconds: float) -> float:
    """Seconds off the nodes."""
    if not 0 <= seconds <= limits.SECONDS:
        raise Invalid(
            (Violation("delay_seconds", f"must be from 0 to {limits.SECONDS}, not {seconds:g}"),)
        )
    return seconds


def new_tags(task: Task, request: pb.TagTaskRequest) -> tuple[str, ...]:
    """The tags after adding and removing. Raises Invalid."""
    violations = FieldViolations()
    for field, tags in (("add", request.add), ("remove", request.remove)):
        for violation in tag_violations(field, tags):
            violations.add(violation.field, violation.message)
    removed = frozenset(request.remove)
    violations.raise_if_any()
    found = tuple(tag for tag in dict.fromkeys((*task.tags, *request.add)) if tag not in removed)
    if len(found) > max(limits.TAGS, len(task.tags)):
        raise Invalid(
            (Violation("add", f"a task has at most {limits.TAGS} tags, not {len(found)}"),)
        )
    return found
