"""Checks that a task could ever run with the present nodes and quotas. Computes resources as the scheduler does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hai_backend.api.nodes.group_capacity import GroupCapacity
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.domain.formatting import format_count, format_list
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow
from hai_backend.domain.spec import ResourceSpec, RoleSpec, TaskSpec
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.policy.group_policy import resolve_policy
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.quota import Limit, Quotas, allows

_SHARED_PARTS = ("cpu", "memory")  # parts of a node that only groups with shared nodes give


@dataclass(frozen=True, slots=True)
class SubmitContext:
    """The facts about the cluster and the user that a submission is validated against."""

    user: str
    capacity: Mapping[str, GroupCapacity]
    has_right: Callable[[str], bool] = lambda right: False
    quotas: tuple[QuotaRow, ...] = ()  # of this user
    shares: tuple[ShareRow, ...] = ()  # of the groups of this user
    policy: Policy = field(default_factory=Policy)  # of the server; groups may override it
    unfinished: int = 0  # tasks of the user
    spec_chars: int = 0  # in the specs of the user's unfinished tasks
    containers: int = 0  # unfinished dev containers of the user
    containers_allowed: int = 0  # 0 means no limit
    lifetimes: Mapping[str, int] = field(default_factory=dict)  # of dev containers, by kind


def check_fit(spec: TaskSpec, context: SubmitContext, violations: FieldViolations) -> None:
    """Add a violation for everything that prevents the task from ever starting."""
    resource = spec.resource
    group = context.capacity[resource.group]
    _check_no_parts("resource", resource, group, violations)
    for i, role in enumerate(spec.roles):
        _check_no_parts(f"roles[{i}]", role, group, violations)
        _check_same_parts(f"roles[{i}]", role, resource, group, violations)
    capacity = group.count_ranks(resource)
    where = f"group {group.name}" + (f"#{resource.zone}" if resource.zone else "")
    if lack := _lack_of_gpus(resource, where, context):
        violations.add("resource.gpu", lack, "GROUP_TOO_SMALL")
    elif capacity < resource.node_count:
        gpus = f" with {format_count(resource.gpu, 'GPU')} each" if resource.gpu else ""
        nodes = f"{format_count(resource.node_count, 'node')}{gpus}"
        message = f"asks for {nodes}; {where} has room for {capacity}"
        violations.add("resource.node_count", message, "GROUP_TOO_SMALL")
    if problem := quota_problem(resource, spec.priority, context):
        violations.add("resource.node_count", problem, "QUOTA_EXCEEDED")
    for row in context.shares:
        units = group.units(resource, resource.node_count)
        if row.group == group.name and row.limit is not None and units > row.limit * UNIT:
            message = (
                f"asks for {format_count(resource.node_count, 'node')}; "
                f"user group {row.name} may hold {row.limit} in group {group.name}"
            )
            violations.add("resource.node_count", message, "SHARE_EXCEEDED")


def _lack_of_gpus(resource: ResourceSpec, where: str, context: SubmitContext) -> str:
    """Return why no node of the zone has the GPUs of one rank. Empty if one has."""

    def largest(group: GroupCapacity, zone: str = "") -> int:
        return max((n.gpus for n in group.nodes.values() if zone in ("", n.zone)), default=0)

    most = largest(context.capacity[resource.group], resource.zone)
    if most >= resource.gpu:
        return ""
    others = sorted(g.name for g in context.capacity.values() if largest(g) >= resource.gpu)
    remedy = f"choose group {format_list(others)}" if others else "no group has a node with so many"
    return (
        f"asks for {format_count(resource.gpu, 'GPU')} on each node; "
        f"the nodes of {where} have {f'at most {most}' if most else 'none'}; {remedy}"
    )


def quota_problem(resource: ResourceSpec, priority: Priority, context: SubmitContext) -> str:
    """Return why the quota does not allow the task even if the user holds no nodes. Empty if it does."""
    group = context.capacity[resource.group]
    rows = (row for row in context.quotas if row.group == resource.group)
    quotas = Quotas(rows, resolve_policy(group.settings, context.policy))
    units = group.units(resource, resource.node_count)
    levels = quotas.auto_levels(context.user) if priority is Priority.AUTO else [priority]
    limits = {level: quotas.limits(context.user, level) for level in levels}
    if any(allows(of_level, units) for of_level in limits.values()):
        return ""
    best = max(levels, key=lambda level: _allowed(limits[level]), default=priority)
    return (
        f"asks for {format_count(resource.node_count, 'node')}; the quota of {context.user} in group {group.name} at "
        f"{best.name} is {_allowed(limits.get(best, ())) / UNIT:g}; ask for fewer, or ask an admin for more"
    )


def _allowed(limits: Iterable[Limit]) -> int:
    return min((limit.allowed for limit in limits), default=0)


def _check_no_parts(
    path: str, part: ResourceSpec | RoleSpec, group: GroupCapacity, violations: FieldViolations
) -> None:
    for name in _SHARED_PARTS if not group.packed else ():
        if getattr(part, name):
            message = (
                f"is for groups whose nodes are shared; nodes of group {group.name} are given whole"
            )
            violations.add(f"{path}.{name}", message)


def _check_same_parts(
    path: str,
    role: RoleSpec,
    resource: ResourceSpec,
    group: GroupCapacity,
    violations: FieldViolations,
) -> None:
    """Check that a role requests what `resource` says, because every rank gets the same part."""
    for name in ("gpu", *_SHARED_PARTS) if group.packed else ("gpu",):
        of_role, of_task = getattr(role, name), getattr(resource, name)
        if of_role and of_role != of_task:
            message = (
                f"is {of_role}, but every rank gets resource.{name}, which is {of_task}; leave it out, "
                f"and set resource.{name} to what the largest rank needs"
            )
            violations.add(f"{path}.{name}", message)
