"""Checks a submission against every rule at once and fills in the defaults. Pure: a function of values.

What a spec says by itself is checked by hai.client.taskfile.validation, as in the client. Here it is compared with the
cluster: groups, rights, quotas, dev containers. A task that can never run with today's nodes and quotas is also
refused: it would wait for ever.
"""

from __future__ import annotations

from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.containers.container_limits import check_container
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.tasks.convert_spec import spec_from_proto
from hai_backend.api.tasks.validation.fit import SubmitContext, check_fit, quota_lack
from hai_backend.api.tasks.validation.placement import check_placement
from hai_backend.domain.errors import Exhausted
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ResourceSpec, TaskSpec, letters

_PRIORITIES = {int(level): level for level in Priority}


def validate(spec: pb.TaskSpec, context: SubmitContext) -> TaskSpec:
    """The spec as a value. Raises Invalid with every violation, or Exhausted when the user has too many tasks."""
    violations = FieldViolations()
    for violation in violations(spec):
        violations.add(violation.field, violation.message)
    if spec.ByteSize() > limits.SPEC_BYTES:
        violations.raise_if_any()  # nothing more is read of it
    check_placement(spec, context, violations)
    check_container(spec, context, violations)
    violations.raise_if_any()
    found = spec_from_proto(spec, context.lifetimes)
    check_fit(found, context, violations)
    violations.raise_if_any()
    if context.unfinished >= limits.UNFINISHED_TASKS:
        raise Exhausted(
            f"{context.user} has {context.unfinished} unfinished tasks, and {limits.UNFINISHED_TASKS} is the limit; "
            "stop some, or wait until some are finished"
        )
    if context.letters + letters(found) > limits.UNFINISHED_SPEC_CHARS:
        raise Exhausted(
            f"the unfinished tasks of {context.user} have {context.letters} letters in variables, arguments and "
            f"`after`, and {limits.UNFINISHED_SPEC_CHARS} is the limit; shorten them, or wait until some are finished"
        )
    return found


def checked_level(resource: ResourceSpec, number: int, context: SubmitContext) -> Priority:
    """A new level for a task. Raises Invalid when there is no such level, or no quota that could ever do."""
    violations = FieldViolations()
    found = level("priority", number, violations)
    violations.raise_if_any()
    known = resource.group in context.capacity
    if known and (lacking := quota_lack(resource, found, context)):
        violations.add("priority", lacking, "QUOTA_EXCEEDED")
    violations.raise_if_any()
    return found


def level(field: str, number: int, violations: FieldViolations) -> Priority:
    """A level by its number."""
    if number not in _PRIORITIES:
        known = ", ".join(f"{p.name} {int(p)}" for p in Priority)
        violations.add(field, f"{number} is no priority; there are {known}")
    return _PRIORITIES.get(number, Priority.AUTO)
