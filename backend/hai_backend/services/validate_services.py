"""Rules for ports and helpers beside the program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import JUPYTER, ServiceSpec, ServiceType
from hai_backend.services import limits
from hai_backend.services.rules import LABEL, Rules
from hai_backend.services.validate_fit import SubmitContext

_BUILT_IN = {JUPYTER: ServiceSpec(JUPYTER, ServiceType.HTTP, 8888)}
_NO_SSHD = (
    "ssh is not built in: nothing here starts an sshd; leave it out and use `hai shell`, or start the sshd of "
    "your image: type tcp, a port, and a startup_script"
)
_TYPES = frozenset(kind.value for kind in ServiceType)


def services(
    asked: Sequence[pb.ServiceSpec], node_count: int, context: SubmitContext, rules: Rules
) -> tuple[ServiceSpec, ...]:
    """services[*]"""
    if len(asked) > limits.SERVICES:
        rules.add("services", f"has {len(asked)} entries; at most {limits.SERVICES} are allowed")
        return ()
    names: set[str] = set()
    ports: set[int] = set()
    found = []
    for i, one in enumerate(asked):
        path = f"services[{i}]"
        if one.name == "ssh" and not one.type:  # as HAI's task files have it
            rules.add(f"{path}.name", _NO_SSHD)
            continue
        if one.name in names:
            rules.add(f"{path}.name", f"{one.name!r} is given twice")
        names.add(one.name)
        service = (
            _built_in(path, one, rules)
            if one.name in _BUILT_IN
            else _custom(path, one, node_count, rules)
        )
        if one.name not in _BUILT_IN:
            _permitted(path, service, context, rules)
        if service.port and service.port in ports:
            rules.add(f"{path}.port", f"{service.port} is taken by another service of this task")
        ports.add(service.port)
        found.append(service)
    return tuple(found)


def _built_in(path: str, asked: pb.ServiceSpec, rules: Rules) -> ServiceSpec:
    for field, _ in asked.ListFields():
        if field.name != "name":
            rules.add(f"{path}.{field.name}", f"may not be set: {asked.name} is built in")
    return _BUILT_IN[asked.name]


def _custom(path: str, asked: pb.ServiceSpec, node_count: int, rules: Rules) -> ServiceSpec:
    rules.matching(
        f"{path}.name", asked.name, LABEL, "at most 63 of a-z, 0-9 and -, no - at an end"
    )
    if not asked.type:
        rules.add(f"{path}.type", "is required: http, tcp or local")
    kind = rules.choice(f"{path}.type", asked.type, ServiceType, ServiceType.LOCAL)
    if asked.rewrite_uri and kind is not ServiceType.HTTP:
        rules.add(f"{path}.rewrite_uri", "is for http services only")
    if asked.type in _TYPES:
        _port(path, asked, kind, rules)
    return ServiceSpec(
        name=asked.name,
        type=kind,
        port=asked.port,
        rank=_ranks(path, asked, kind, node_count, rules),
        startup_script=_script(path, asked.startup_script, rules),
        rewrite_uri=asked.rewrite_uri,
    )


def _port(path: str, asked: pb.ServiceSpec, kind: ServiceType, rules: Rules) -> None:
    if kind is not ServiceType.LOCAL:
        rules.number(f"{path}.port", asked.port, 1, 65535)
    elif asked.port:
        rules.add(f"{path}.port", "may not be set for a local service")


def _ranks(
    path: str, asked: pb.ServiceSpec, kind: ServiceType, node_count: int, rules: Rules
) -> tuple[int, ...]:
    ranks = tuple(asked.rank) or (0,)
    if kind is not ServiceType.LOCAL and ranks != (0,):
        rules.add(f"{path}.rank", "must be [0] unless the service is local")
    elif any(not 0 <= rank < node_count for rank in ranks):
        rules.add(f"{path}.rank", f"must name ranks from 0 to {node_count - 1}")
    if len(set(ranks)) != len(ranks):
        rules.add(f"{path}.rank", "names a rank twice")
    return ranks


def _script(path: str, script: str, rules: Rules) -> str:
    field = f"{path}.startup_script"
    if ";" in script or "\n" in script:
        rules.add(field, "must be one command, without ; and line breaks")
    if len(rules.text(field, script, limits.COMMAND_CHARS)) > limits.COMMAND_CHARS:
        return script  # to read it would take time that grows with the square
    try:
        shlex.split(script)
    except ValueError as error:
        rules.add(field, f"is no command: {str(error).lower()}")
    return script


def _permitted(path: str, service: ServiceSpec, context: SubmitContext, rules: Rules) -> None:
    kind, port = service.type.value, service.port or "*"
    wanted = (f"custom_service:{kind}:{port}", f"custom_service:{kind}:*")
    if not any(context.has_right(right) for right in wanted):
        rules.add(
            path, f"{context.user} lacks the right {' or '.join(dict.fromkeys(wanted))}", "DENIED"
        )
