"""Checks that a task could ever run with the present nodes and quotas. Computes resources as the scheduler does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hai_backend.api.nodes.group_capacity import GroupCapacity
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow
from hai_backend.domain.spec import ResourceSpec, RoleSpec, TaskSpec
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.policy.group_policy import resolve_policy
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.quota import Limit, Quotas, allows

_PARTS = ("gpu", "cpu", "memory")


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
    capacity = group.count_ranks(resource.zone, group.rank_resources(resource))
    if capacity < resource.node_count:
        where = f"group {group.name}" + (f"#{resource.zone}" if resource.zone else "")
        message = f"asks for {_format_nodes(resource.node_count)}; {where} has room for {capacity}"
        violations.add("resource.node_count", message, "GROUP_TOO_SMALL")
    if problem := quota_problem(resource, spec.priority, context):
        violations.add("resource.node_count", problem, "QUOTA_EXCEEDED")
    for row in context.shares:
        units = group.units(resource, resource.node_count)
        if row.group == group.name and row.limit is not None and units > row.limit * UNIT:
            message = f"asks for {_format_nodes(resource.node_count)}; user group {row.name} may hold {row.limit}"
            violations.add(
                "resource.node_count", f"{message} in group {group.name}", "SHARE_EXCEEDED"
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
        f"asks for {_format_nodes(resource.node_count)}; the quota of {context.user} in group {group.name} at "
        f"{best.name} is {_allowed(limits.get(best, ())) / UNIT:g}; ask for fewer, or ask an admin for more"
    )


def _allowed(limits: Iterable[Limit]) -> int:
    return min((limit.allowed for limit in limits), default=0)


def _check_no_parts(
    path: str, part: ResourceSpec | RoleSpec, group: GroupCapacity, violations: FieldViolations
) -> None:
    if group.packed:
        return
    for name in _PARTS:
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
    """Check that a role requests what `resource` says: where nodes are shared, every rank gets the same part."""
    for name in _PARTS if group.packed else ():
        of_role, of_task = getattr(role, name), getattr(resource, name)
        if of_role and of_role != of_task:
            message = (
                f"is {of_role}, but every rank gets resource.{name}, which is {of_task}; leave it out, "
                f"and set resource.{name} to what the largest rank needs"
            )
            violations.add(f"{path}.{name}", message)


def _format_nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"
