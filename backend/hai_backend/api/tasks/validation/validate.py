"""Validates a submission and fills in the defaults. Pure.

`hai.client.taskfile.validation` checks the spec itself, in the client and here. This module compares the spec with the
cluster: groups, rights, quotas, dev containers. It also refuses a task that could never start with the present nodes
and quotas.
"""

from __future__ import annotations

from hai.client.taskfile.validation import violations as find_violations
from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.containers.container_limits import check_container
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.tasks.convert_spec import spec_from_proto
from hai_backend.api.tasks.validation.fit import SubmitContext, check_fit, quota_problem
from hai_backend.api.tasks.validation.placement import check_placement
from hai_backend.domain.errors import Exhausted
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ResourceSpec, TaskSpec, count_characters

_PRIORITIES = {int(level): level for level in Priority}


def validate(spec: pb.TaskSpec, context: SubmitContext) -> TaskSpec:
    """Return the spec as a value. Raises Invalid with every violation, or Exhausted if the user has too many tasks."""
    violations = FieldViolations()
    for violation in find_violations(spec):
        violations.add(violation.field, violation.message)
    if spec.ByteSize() > limits.SPEC_BYTES:
        violations.raise_if_any()  # the checks below would take too long
    check_placement(spec, context, violations)
    check_container(spec, context, violations)
    violations.raise_if_any()
    valid = spec_from_proto(spec, context.lifetimes)
    check_fit(valid, context, violations)
    violations.raise_if_any()
    if context.unfinished >= limits.UNFINISHED_TASKS:
        raise Exhausted(
            f"{context.user} has {context.unfinished} unfinished tasks, and {limits.UNFINISHED_TASKS} is the limit; "
            "stop some, or wait until some are finished"
        )
    if context.spec_chars + count_characters(valid) > limits.UNFINISHED_SPEC_CHARS:
        raise Exhausted(
            f"the unfinished tasks of {context.user} have {context.spec_chars} characters in variables, arguments and "
            f"`after`, and {limits.UNFINISHED_SPEC_CHARS} is the limit; shorten them, or wait until some are finished"
        )
    return valid


def check_level(resource: ResourceSpec, number: int, context: SubmitContext) -> Priority:
    """Return the level with this number. Raises Invalid if it is unknown, or if no quota allows the task to have it."""
    violations = FieldViolations()
    level = read_level("priority", number, violations)
    violations.raise_if_any()
    is_known_group = resource.group in context.capacity
    if is_known_group and (problem := quota_problem(resource, level, context)):
        violations.add("priority", problem, "QUOTA_EXCEEDED")
    violations.raise_if_any()
    return level


def read_level(field: str, number: int, violations: FieldViolations) -> Priority:
    if number not in _PRIORITIES:
        levels = ", ".join(f"{p.name} {int(p)}" for p in Priority)
        violations.add(field, f"{number} is no priority; there are {levels}")
    return _PRIORITIES.get(number, Priority.AUTO)
