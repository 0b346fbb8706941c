"""Rules for ranks of different kinds, and for what happens when one of them ends."""

from __future__ import annotations

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import OnEnd, PolicySpec, RoleSpec
from hai_backend.services import limits
from hai_backend.services.rules import LABEL, Rules
from hai_backend.services.validate_program import entrypoint, environments, parameters

_STANDARD = PolicySpec()


def roles(spec: pb.TaskSpec, node_count: int, rules: Rules) -> tuple[RoleSpec, ...]:
    """roles[*]: together they are the ranks of the task."""
    if not spec.roles:
        return ()
    if len(spec.roles) > limits.ROLES:
        rules.add("roles", f"has {len(spec.roles)} entries; at most {limits.ROLES} are allowed")
        return ()
    names = [role.name for role in spec.roles]
    for i, name in enumerate(names):
        if name in names[:i]:
            rules.add(f"roles[{i}].name", f"{name[:64]!r} is given twice")
    ranks = sum(role.count for role in spec.roles)
    if ranks > limits.NODES:
        rules.add("roles", f"have {ranks} ranks together; at most {limits.NODES} are allowed")
    elif spec.resource.HasField("node_count") and ranks != node_count:
        rules.add("roles", f"have {ranks} ranks together, but resource.node_count is {node_count}")
    executable = spec.spec.entrypoint_executable
    return tuple(_role(f"roles[{i}]", role, executable, rules) for i, role in enumerate(spec.roles))


def _role(path: str, role: pb.RoleSpec, executable: bool, rules: Rules) -> RoleSpec:
    entry = role.entrypoint
    return RoleSpec(
        name=rules.matching(
            f"{path}.name", role.name, LABEL, "at most 63 of a-z, 0-9 and -, no - at an end"
        ),
        count=rules.number(f"{path}.count", role.count, 1, limits.NODES),
        entrypoint=entry and entrypoint(f"{path}.entrypoint", entry, executable, rules),
        parameters=parameters(f"{path}.parameters", role.parameters, rules),
        environments=environments(f"{path}.environments", role.environments, rules),
        gpu=rules.number(f"{path}.gpu", role.gpu, 0, limits.GPUS),
        cpu=rules.number(f"{path}.cpu", role.cpu, 0, limits.CPUS),
        memory=rules.number(f"{path}.memory", role.memory, 0, limits.MEMORY_GB),
    )


def policies(spec: pb.TaskSpec, node_count: int, rules: Rules) -> PolicySpec:
    """policies.*"""
    if not spec.HasField("policies"):
        return _STANDARD
    asked = spec.policies
    return PolicySpec(
        on_pod_failed=_on_end("on_pod_failed", asked.on_pod_failed, rules),
        on_pod_evicted=_on_end("on_pod_evicted", asked.on_pod_evicted, rules),
        on_role_completed=_on_end("on_role_completed", asked.on_role_completed, rules),
        min_available=rules.number("policies.min_available", asked.min_available, 0, node_count),
    )


def _on_end(name: str, value: str, rules: Rules) -> OnEnd:
    default: OnEnd = getattr(_STANDARD, name)
    return rules.choice(f"policies.{name}", value, OnEnd, default)
