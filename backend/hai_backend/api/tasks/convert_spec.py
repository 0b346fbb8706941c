"""A valid spec as a value, with every default filled in, and as a message again.

Values and messages have the same names; what is as a message has it by itself is not set in the message, because every
answer about a task comes along here.
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

_Given = dict[str, Any]


_BUILT_IN = {JUPYTER: ServiceSpec(JUPYTER, ServiceType.HTTP, 8888)}


def spec_from_proto(spec: pb.TaskSpec, lifetimes: Mapping[str, int]) -> TaskSpec:
    """The value of a spec that keeps the rules. `lifetimes` are those of dev containers, by kind."""
    level = Priority(spec.priority) if spec.HasField("priority") else Priority.AUTO
    return TaskSpec(
        name=spec.name,
        spec=ProgramSpec(**_read(spec.spec)),
        task_type=TaskType(spec.task_type or TaskType.TRAINING),
        priority=level,
        resource=_read_resource(spec),
        services=tuple(map(_read_service, spec.services)),
        options=_read_options(spec, lifetimes),
        roles=tuple(RoleSpec(**_read(role)) for role in spec.roles),
        policies=_read_policies(spec.policies),
    )


def _read(message: Message) -> _Given:
    """What is given of the texts and numbers of a message; lists as tuples, maps as dictionaries."""
    return {field.name: _plain(value) for field, value in message.ListFields()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | Message):
        return value
    return dict(value) if isinstance(value, Mapping) else tuple(value)


def _read_resource(spec: pb.TaskSpec) -> ResourceSpec:
    given = _read(spec.resource)
    group, _, zone = given.pop("group", "").partition("#")
    return ResourceSpec(
        **{**given, "group": group or "default", "zone": zone, "node_count": node_count(spec)}
    )


def _read_service(service: pb.ServiceSpec) -> ServiceSpec:
    if built_in := _BUILT_IN.get(service.name):
        return built_in
    return ServiceSpec(**{**_read(service), "type": ServiceType(service.type)})


def _read_options(spec: pb.TaskSpec, lifetimes: Mapping[str, int]) -> OptionsSpec:
    given = container_options(spec, _read(spec.options), lifetimes)
    if "override_node_resource" in given:
        given["override_node_resource"] = NodeResourceSpec(
            **_read(spec.options.override_node_resource)
        )
    if "profile" in given:
        given["profile"] = ProfileSpec(**_read(spec.options.profile))
    if "tags" in given:
        given["tags"] = tuple(dict.fromkeys(given["tags"]))
    given["after"] = tuple(
        AfterSpec(after.task, AfterOutcome(after.outcome or AfterOutcome.SUCCEEDED))
        for after in spec.options.after
    )
    return OptionsSpec(**given)


def _read_policies(policies: pb.PolicySpec) -> PolicySpec:
    given = _read(policies)
    words = {name: OnEnd(value) for name, value in given.items() if isinstance(value, str)}
    return PolicySpec(**{**given, **words})


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
