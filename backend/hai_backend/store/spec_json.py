"""A task's spec as JSON text: explicit, fast, readable by people, with every field written.

Every field is written, so that a later change of a default changes no stored task. Keys that this version does not
know are skipped, and missing ones take their default: a database may have been written by a newer or an older server.
"""

from __future__ import annotations

import json
from dataclasses import fields
from operator import attrgetter
from typing import Any

from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import (
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

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def dump_spec(spec: TaskSpec) -> str:
    """The spec as one line of JSON."""
    return _encode(
        {
            "version": spec.version,
            "name": spec.name,
            "task_type": spec.task_type.value,
            "priority": int(spec.priority),
            "spec": _program(spec.spec),
            "resource": _plain(spec.resource),
            "services": [{**_plain(s), "type": s.type.value} for s in spec.services],
            "options": _options(spec.options),
            "roles": [{**_plain(r), "environments": dict(r.environments)} for r in spec.roles],
            "policies": _policies(spec.policies),
        }
    )


def load_spec(text: str) -> TaskSpec:
    """The spec that `dump_spec` wrote, in this or another version of the server."""
    data = json.loads(text)
    return TaskSpec(
        name=data["name"],
        spec=ProgramSpec(**_tuples(_known(ProgramSpec, data["spec"]), "parameters")),
        task_type=_TYPES[data["task_type"]],
        priority=_PRIORITIES[data["priority"]],
        resource=ResourceSpec(**_known(ResourceSpec, data.get("resource", {}))),
        services=tuple([_service(s) for s in data.get("services", ())]),
        options=_read_options(_known(OptionsSpec, data.get("options", {}))),
        roles=tuple([_role(r) for r in data.get("roles", ())]),
        policies=_read_policies(_known(PolicySpec, data.get("policies", {}))),
        version=data["version"],
    )


_PARTS: tuple[type[Any], ...] = (
    TaskSpec,
    ProgramSpec,
    ResourceSpec,
    ServiceSpec,
    NodeResourceSpec,
    ProfileSpec,
    OptionsSpec,
    RoleSpec,
    PolicySpec,
)
_NAMES = {kind: tuple([f.name for f in fields(kind)]) for kind in _PARTS}
_VALUES = {kind: attrgetter(*names) for kind, names in _NAMES.items()}
_TYPES = {kind.value: kind for kind in TaskType}
_PRIORITIES = {int(level): level for level in Priority}
_ENDS = {end.value: end for end in OnEnd}
_ENDS_OF_PARTS = frozenset({"on_pod_failed", "on_pod_evicted", "on_role_completed"})
_KEYS = {kind: frozenset(names) for kind, names in _NAMES.items()}


def _plain(value: Any) -> dict[str, Any]:
    kind = type(value)
    return dict(zip(_NAMES[kind], _VALUES[kind](value), strict=True))


def _known(kind: type[Any], data: dict[str, Any]) -> dict[str, Any]:
    if data.keys() <= _KEYS[kind]:
        return data
    return {key: value for key, value in data.items() if key in _KEYS[kind]}


def _tuples(data: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        if name in data:
            data[name] = tuple(data[name])
    return data


def _program(program: ProgramSpec) -> dict[str, Any]:
    data = _plain(program)
    data["environments"] = dict(program.environments)
    return data


def _options(options: OptionsSpec) -> dict[str, Any]:
    data = _plain(options)
    if options.override_node_resource is not None:
        data["override_node_resource"] = _plain(options.override_node_resource)
    if options.profile is not None:
        data["profile"] = _profile(options.profile)
    return data


def _profile(profile: ProfileSpec) -> dict[str, Any]:
    return {**_plain(profile), "interval": dict(profile.interval)}


def _policies(policies: PolicySpec) -> dict[str, Any]:
    return {
        "on_pod_failed": policies.on_pod_failed.value,
        "on_pod_evicted": policies.on_pod_evicted.value,
        "on_role_completed": policies.on_role_completed.value,
        "min_available": policies.min_available,
    }


def _read_options(data: dict[str, Any]) -> OptionsSpec:
    node, profile = data.get("override_node_resource"), data.get("profile")
    if node is not None:
        data["override_node_resource"] = NodeResourceSpec(**_known(NodeResourceSpec, node))
    if profile is not None:
        data["profile"] = ProfileSpec(**_known(ProfileSpec, profile))
    return OptionsSpec(**_tuples(data, "tags", "assigned_nodes", "sidecar"))


def _read_policies(data: dict[str, Any]) -> PolicySpec:
    for name in data.keys() & _ENDS_OF_PARTS:
        data[name] = _ENDS[data[name]]
    return PolicySpec(**data)


def _service(data: dict[str, Any]) -> ServiceSpec:
    known = _tuples(_known(ServiceSpec, data), "rank")
    return ServiceSpec(**{**known, "type": ServiceType(known["type"])})


def _role(data: dict[str, Any]) -> RoleSpec:
    return RoleSpec(**_tuples(_known(RoleSpec, data), "parameters"))
