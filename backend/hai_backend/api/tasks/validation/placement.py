"""Checks the group, zone, nodes and services of a task against this cluster and the rights of the user."""

from __future__ import annotations

from collections.abc import Sequence

from hai.client.taskfile.validation.conditions import BUILT_IN_SERVICE, node_count
from hai.client.taskfile.validation.violations import suggestion_text
from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.nodes.group_capacity import GroupCapacity
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.tasks.validation.fit import SubmitContext
from hai_backend.domain.formatting import format_count


def check_placement(spec: pb.TaskSpec, context: SubmitContext, violations: FieldViolations) -> None:
    """Add a violation for each thing that does not exist here, and for each right that the user lacks.

    Fields that already have a violation are skipped.
    """
    group, _, zone = spec.resource.group.partition("#")
    if violations.has_none("resource.group"):
        _check_group(group or "default", zone, context, violations)
    for index, service in enumerate(spec.services):
        path = f"services[{index}]"
        if service.name != BUILT_IN_SERVICE and violations.has_none(path):
            _check_service_right(path, service, context, violations)
    if spec.options.assigned_nodes:
        _check_assigned(spec, context, violations)
        capacity = context.capacity.get(group or "default")
        if capacity is not None and violations.has_none("resource.group"):
            _check_nodes(spec.options.assigned_nodes, capacity, zone, violations)


def _check_group(
    group: str, zone: str, context: SubmitContext, violations: FieldViolations
) -> None:
    if group not in context.capacity:
        names = sorted(context.capacity)
        existing = ", ".join(names[:20]) or "none yet"
        message = (
            f"there is no group {group[:64]!r}; there are {existing}{suggestion_text(group, names)}"
        )
        violations.add("resource.group", message, "NO_SUCH_GROUP")
    elif zone and zone not in context.capacity[group].zones:
        existing = ", ".join(sorted(context.capacity[group].zones)) or "none"
        message = f"group {group} has no zone {zone!r}; it has {existing}"
        violations.add("resource.group", message, "NO_SUCH_GROUP")


def _check_service_right(
    path: str, service: pb.ServiceSpec, context: SubmitContext, violations: FieldViolations
) -> None:
    sufficient = [f"custom_service:{service.type}:{port}" for port in (service.port or "*", "*")]
    if not any(context.has_right(right) for right in sufficient):
        rights = " or ".join(dict.fromkeys(sufficient))
        violations.add(path, f"{context.user} lacks the right {rights}", "DENIED")


def _check_assigned(spec: pb.TaskSpec, context: SubmitContext, violations: FieldViolations) -> None:
    field, names, count = "options.assigned_nodes", spec.options.assigned_nodes, node_count(spec)
    if not context.has_right("assign_nodes"):
        message = f"{context.user} lacks the right assign_nodes; an admin can give it"
        violations.add(field, message, "DENIED")
    if len(names) != count and violations.has_none("resource.node_count", "roles"):
        message = f"names {format_count(len(names), 'node')}, but resource.node_count is {count}"
        violations.add(field, message)


def _check_nodes(
    names: Sequence[str], group: GroupCapacity, zone: str, violations: FieldViolations
) -> None:
    unknown = next((name for name in names if name not in group.nodes), "")
    suggestion = suggestion_text(unknown, group.nodes)  # for the first unknown name only
    for index, name in enumerate(names):
        node, path = group.nodes.get(name), f"options.assigned_nodes[{index}]"
        if node is None:
            hint = suggestion if name == unknown else ""
            violations.add(
                path, f"group {group.name} has no node {name[:64]!r}{hint}", "NO_SUCH_NODE"
            )
        elif zone and node.zone != zone:
            violations.add(path, f"node {name} is not in zone {zone}", "NO_SUCH_NODE")
