"""Converts a valid spec from its message to a value with all defaults, and back.

Fields of values and messages have the same names. Fields with the default value of the message are not set, because
every full response about a task is converted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from hai.client.taskfile.validation.conditions import node_count
from hai.redaction import redact_values
from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.containers.container_limits import container_options
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import (
    JUPYTER,
    AfterOutcome,
    AfterSpec,
    NodeResourceSpec,
    OnEnd,
    OptionsSpec,
    PolicySpec,
    ProfileSpec,
    ProgramSpec,
    ResourceSpec,
    RoleSpec,
    ServiceSpec,
    ServiceType,
    TaskSpec,
    TaskType,
)

_Fields = dict[str, Any]


_BUILT_IN_SERVICES = {JUPYTER: ServiceSpec(JUPYTER, ServiceType.HTTP, 8888)}


def spec_from_proto(spec: pb.TaskSpec, lifetimes: Mapping[str, int]) -> TaskSpec:
    """Convert a valid spec. `lifetimes` are the default lifetimes of dev containers, by kind."""
    priority = Priority(spec.priority) if spec.HasField("priority") else Priority.AUTO
    return TaskSpec(
        name=spec.name,
        spec=ProgramSpec(**_read(spec.spec)),
        task_type=TaskType(spec.task_type or TaskType.TRAINING),
        priority=priority,
        resource=_read_resource(spec),
        services=tuple(map(_read_service, spec.services)),
        options=_read_options(spec, lifetimes),
        roles=tuple(RoleSpec(**_read(role)) for role in spec.roles),
        policies=_read_policies(spec.policies),
    )


def _read(message: Message) -> _Fields:
    """Return the fields that are set in a message, with lists as tuples and maps as dictionaries."""
    return {field.name: _read_value(value) for field, value in message.ListFields()}


def _read_value(value: Any) -> Any:
    if isinstance(value, str | int | float | Message):
        return value
    return dict(value) if isinstance(value, Mapping) else tuple(value)


def _read_resource(spec: pb.TaskSpec) -> ResourceSpec:
    values = _read(spec.resource)
    group, _, zone = values.pop("group", "").partition("#")
    return ResourceSpec(
        **{**values, "group": group or "default", "zone": zone, "node_count": node_count(spec)}
    )


def _read_service(service: pb.ServiceSpec) -> ServiceSpec:
    if built_in := _BUILT_IN_SERVICES.get(service.name):
        return built_in
    return ServiceSpec(**{**_read(service), "type": ServiceType(service.type)})


def _read_options(spec: pb.TaskSpec, lifetimes: Mapping[str, int]) -> OptionsSpec:
    values = container_options(spec, _read(spec.options), lifetimes)
    if "override_node_resource" in values:
        values["override_node_resource"] = NodeResourceSpec(
            **_read(spec.options.override_node_resource)
        )
    if "profile" in values:
        values["profile"] = ProfileSpec(**_read(spec.options.profile))
    if "tags" in values:
        values["tags"] = tuple(dict.fromkeys(values["tags"]))
    values["after"] = tuple(
        AfterSpec(after.task, AfterOutcome(after.outcome or AfterOutcome.SUCCEEDED))
        for after in spec.options.after
    )
    return OptionsSpec(**values)


def _read_policies(policies: pb.PolicySpec) -> PolicySpec:
    values = _read(policies)
    members = {name: OnEnd(value) for name, value in values.items() if isinstance(value, str)}
    return PolicySpec(**{**values, **members})


def spec_to_proto(spec: TaskSpec) -> pb.TaskSpec:
    """Convert a spec to a message that `validate` converts back to it, except for credentials in URLs."""
    return pb.TaskSpec(
        **_message_fields(spec)
        | {
            "spec": _message_fields(spec.spec),
            "resource": _resource_fields(spec.resource),
            "services": [_service_fields(service) for service in spec.services],
            "options": _options_fields(spec.options),
            "roles": [_message_fields(role) for role in spec.roles],
            "policies": _message_fields(spec.policies),
        }
    )


_MESSAGES: dict[type[Any], Any] = {
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
    for kind, message in _MESSAGES.items()
}
_GETTERS = {kind: attrgetter(*names) for kind, names in _NAMES.items()}
_OPTIONAL = frozenset(
    field.name
    for message in _MESSAGES.values()
    for field in message.DESCRIPTOR.fields
    if field.has_presence and field.message_type is None
)
"""Fields in which 0 differs from an unset field."""


def _message_fields(part: Any) -> _Fields:
    kind = type(part)
    pairs = zip(_NAMES[kind], _GETTERS[kind](part), strict=True)
    return {name: redact_values(value) for name, value in pairs if value or name in _OPTIONAL}


def _resource_fields(resource: ResourceSpec) -> _Fields:
    values = _message_fields(resource)
    if resource.zone:
        values["group"] = f"{resource.group}#{resource.zone}"
    return values


def _service_fields(service: ServiceSpec) -> _Fields:
    if service.name == JUPYTER:  # a built-in service; requests may set nothing else of it
        return {"name": service.name}
    return _message_fields(service)


def _options_fields(options: OptionsSpec) -> _Fields:
    values = _message_fields(options)
    for name in ("override_node_resource", "profile"):
        if name in values:
            values[name] = _message_fields(values[name])
    if options.after:
        values["after"] = [_message_fields(after) for after in options.after]
    return values
