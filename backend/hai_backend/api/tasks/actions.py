"""Checks requests that change an existing task."""

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

_MANUAL_OUTCOMES = (Outcome.SUCCEEDED, Outcome.FAILED)
_MAX_CHANGES = 1000  # of tasks; beyond this number, old entries are dropped


class PriorityRateLimit:
    """Limits how often a user may change the priority of a task, because each change reorders the whole queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed_at: dict[int, float] = {}

    def check(self, identity: Identity, task_id: int) -> None:
        """Raise Exhausted, with the time to wait, if the last change was too recent."""
        changed_at = self._changed_at.get(task_id, -math.inf)
        wait = changed_at + limits.PRIORITY_SECONDS - self._clock.now()
        was_clock_set_back = wait > limits.PRIORITY_SECONDS
        if wait > 0 and not was_clock_set_back and not identity.operates:
            raise Exhausted(
                f"the priority of task {task_id} was changed less than {limits.PRIORITY_SECONDS:g} s ago; "
                f"try again in {wait:.1f} s",
                retry_after=wait,
            )

    def record_change(self, task_id: int) -> None:
        now = self._clock.now()
        if len(self._changed_at) > _MAX_CHANGES:
            oldest = now - limits.PRIORITY_SECONDS
            self._changed_at = {t: time for t, time in self._changed_at.items() if time > oldest}
        self._changed_at[task_id] = now


def read_outcome(number: int) -> Outcome | None:
    """Return the outcome with which a task is stopped, or None if the request sets none. Raises Invalid."""
    if number == task_pb2.TASK_OUTCOME_UNSPECIFIED:
        return None
    outcome = OUTCOMES_BY_NUMBER.get(number)
    if outcome not in _MANUAL_OUTCOMES:
        raise Invalid((Violation("outcome", "must be SUCCEEDED, FAILED or unset"),))
    return outcome


def check_delay(seconds: float) -> float:
    """Return how long a suspended task stays off its nodes. Raises Invalid."""
    if not 0 <= seconds <= limits.SECONDS:
        raise Invalid(
            (Violation("delay_seconds", f"must be from 0 to {limits.SECONDS}, not {seconds:g}"),)
        )
    return seconds


def new_tags(task: Task, request: pb.TagTaskRequest) -> tuple[str, ...]:
    """Return the tags of a task after a request. Raises Invalid."""
    violations = FieldViolations()
    for field, requested in (("add", request.add), ("remove", request.remove)):
        for violation in tag_violations(field, requested):
            violations.add(violation.field, violation.message)
    removed = frozenset(request.remove)
    violations.raise_if_any()
    tags = tuple(tag for tag in dict.fromkeys((*task.tags, *request.add)) if tag not in removed)
    if len(tags) > max(limits.TAGS, len(task.tags)):
        raise Invalid(
            (Violation("add", f"a task has at most {limits.TAGS} tags, not {len(tags)}"),)
        )
    return tags
