"""Checks a submission against every rule at once and fills in the defaults. Pure: a function of values.

The rules are those of HAI's yaml schema, version 2, and of our additions; numbers stand in limits.py. What can never
run with today's nodes and quotas is refused here, too: a task that would wait for ever helps nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message

from hai.client.fields import ENUMS, refused_task_type
from hai.redaction import MASK, is_redacted
from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.errors import Exhausted
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ResourceSpec, TaskSpec, TaskType, letters
from hai_backend.services import limits
from hai_backend.services.rules import Rules, nearest, shown
from hai_backend.services.validate_fit import SubmitContext, check_fit, quota_lack
from hai_backend.services.validate_gang import policies, roles
from hai_backend.services.validate_options import options
from hai_backend.services.validate_program import program
from hai_backend.services.validate_resource import resource
from hai_backend.services.validate_services import services

_TASK_TYPES = ENUMS["TaskSpec.task_type"]
_PRIORITIES = {int(level): level for level in Priority}


def validate(spec: pb.TaskSpec, context: SubmitContext) -> TaskSpec:
    """The spec as a value. Raises Invalid with every violation, or Exhausted when the user has too many tasks."""
    rules = Rules()
    if spec.ByteSize() > limits.SPEC_BYTES:
        rules.add(
            "", f"the spec has {spec.ByteSize()} bytes; at most {limits.SPEC_BYTES} are allowed"
        )
        rules.check()
    if MASK.encode() in spec.SerializeToString():
        _refuse_masked("", spec, rules)
    found = _convert(spec, context, rules)
    if not rules.broken:
        check_fit(found, context, rules)
    rules.check()
    if context.unfinished >= limits.UNFINISHED_TASKS:
        raise Exhausted(
            f"{context.user} has {context.unfinished} unfinished tasks, and {limits.UNFINISHED_TASKS} is the limit; "
            "stop some, or wait until some are finished"
        )
    if context.letters + letters(found) > limits.UNFINISHED_LETTERS:
        raise Exhausted(
            f"the unfinished tasks of {context.user} have {context.letters} letters in variables, arguments and "
            f"`after`, and {limits.UNFINISHED_LETTERS} is the limit; shorten them, or wait until some are finished"
        )
    return found


def _convert(spec: pb.TaskSpec, context: SubmitContext, rules: Rules) -> TaskSpec:
    if spec.version != 2:
        rules.add("version", f"must be 2, not {spec.version}")
    task_type = _task_type(spec.task_type, rules)
    where = resource(spec, task_type, context, rules)
    return TaskSpec(
        name=_name(spec.name, rules),
        spec=program(spec.spec, rules),
        task_type=task_type,
        priority=priority(spec, rules),
        resource=where,
        services=services(spec.services, where.node_count, context, rules),
        options=options(spec, where, context, rules),
        roles=roles(spec, where.node_count, rules),
        policies=policies(spec, where.node_count, rules),
    )


def _refuse_masked(path: str, part: object, rules: Rules) -> None:
    """Of a task that was described and is submitted again."""
    if isinstance(part, str) and is_redacted(part):
        rules.add(path, f"has {MASK} in place of a password or token, which is not shown: write it")
    elif isinstance(part, Message):
        for field, value in part.ListFields():
            _refuse_masked(f"{path}.{field.name}" if path else field.name, value, rules)
    elif isinstance(part, Mapping):
        for name, value in part.items():
            _refuse_masked(f"{path}[{name}]", value, rules)
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        for i, value in enumerate(part):
            _refuse_masked(f"{path}[{i}]", value, rules)


def _task_type(word: str, rules: Rules) -> TaskType:
    if refused := refused_task_type(word):
        rules.add("task_type", refused)
        return TaskType.TRAINING
    if word and word not in _TASK_TYPES:
        known = ", ".join(_TASK_TYPES)
        rules.add("task_type", f"{shown(word)} must be one of {known}{nearest(word, _TASK_TYPES)}")
        return TaskType.TRAINING
    return TaskType(word or TaskType.TRAINING)


def _name(name: str, rules: Rules) -> str:
    if not name.strip():
        rules.add("name", "is required")
    if "(" in name or ")" in name:
        rules.add("name", "may not contain parentheses")
    return rules.line("name", name, limits.NAME_CHARS)


def priority(spec: pb.TaskSpec, rules: Rules) -> Priority:
    """The level asked for; AUTO when none is."""
    return level("priority", spec.priority, rules) if spec.HasField("priority") else Priority.AUTO


def checked_level(resource: ResourceSpec, number: int, context: SubmitContext) -> Priority:
    """A new level for a task. Raises Invalid when there is no such level, or no quota that could ever do."""
    rules = Rules()
    found = level("priority", number, rules)
    rules.check()
    known = resource.group in context.capacity
    if known and (lacking := quota_lack(resource, found, context)):
        rules.add("priority", lacking, "QUOTA_EXCEEDED")
    rules.check()
    return found


def level(field: str, number: int, rules: Rules) -> Priority:
    """A level by its number."""
    if number not in _PRIORITIES:
        known = ", ".join(f"{p.name} {int(p)}" for p in Priority)
        rules.add(field, f"{number} is no priority; there are {known}")
    return _PRIORITIES.get(number, Priority.AUTO)
