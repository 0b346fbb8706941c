"""A validated spec as a message again: what was asked for, with every default filled in.

validate.py is the other direction, since reading a spec and judging it are one walk. Values and messages have the same
names; what is as a message has it by itself is not set, because every answer about a task comes along here.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from hai.redaction import redact_values
from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import (
    JUPYTER,
    AfterSpec,
    NodeResourceSpec,
    OptionsSpec,
    PolicySpec,
    ProfileSpec,
    ProgramSpec,
    ResourceSpec,
    RoleSpec,
    ServiceSpec,
    TaskSpec,
)

_Given = dict[str, Any]


def spec_to_proto(spec: TaskSpec) -> pb.TaskSpec:
    """`validate(spec_to_proto(s)) == s`, but for credentials in URLs: they are not shown."""
    return pb.TaskSpec(
        **_given(spec)
        | {
            "spec": _given(spec.spec),
            "resource": _resource(spec.resource),
            "services": [_service(service) for service in spec.services],
            "options": _options(spec.options),
            "roles": [_given(role) for role in spec.roles],
            "policies": _given(spec.policies),
        }
    )


_KINDS: dict[type[Any], Any] = {
    TaskSpec: pb.TaskSpec,
    ProgramSpec: pb.ProgramSpec,
    ResourceSpec: pb.ResourceSpec,
    ServiceSpec: pb.ServiceSpec,
    NodeResourceSpec: pb.NodeResourceSpec,
    ProfileSpec: pb.ProfileSpec,
    OptionsSpec: pb.OptionsSpec,
    RoleSpec: pb.RoleSpec,
    PolicySpec: pb.PolicySpec,
    AfterSpec: pb.AfterSpec,
}
_NAMES = {
    kind: [f.name for f in fields(kind) if f.name in message.DESCRIPTOR.fields_by_name]
    for kind, message in _KINDS.items()
}
_VALUES = {kind: attrgetter(*names) for kind, names in _NAMES.items()}
_OPTIONAL = frozenset(
    field.name
    for message in _KINDS.values()
    for field in message.DESCRIPTOR.fields
    if field.has_presence and field.message_type is None
)
"""Zero is not the same as nothing there."""


def _given(part: Any) -> _Given:
    kind = type(part)
    pairs = zip(_NAMES[kind], _VALUES[kind](part), strict=True)
    return {name: redact_values(value) for name, value in pairs if value or name in _OPTIONAL}


def _resource(resource: ResourceSpec) -> _Given:
    given = _given(resource)
    if resource.zone:
        given["group"] = f"{resource.group}#{resource.zone}"
    return given


def _service(service: ServiceSpec) -> _Given:
    if service.name == JUPYTER:  # built in: nothing else may be set
        return {"name": service.name}
    return _given(service)


def _options(options: OptionsSpec) -> _Given:
    given = _given(options)
    for name in ("override_node_resource", "profile"):
        if name in given:
            given[name] = _given(given[name])
    if options.after:
        given["after"] = [_given(after) for after in options.after]
    return given
