"""Limits and default options of dev containers on this cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.tasks.validation.fit import SubmitContext
from hai_backend.domain.spec import ResourceSpec, TaskType

GRACE_SECONDS = 30.0  # default notice before a container is stopped
_MARGIN_SECONDS = 2.0  # the agent yields this long before the time to save ends
_DEFAULT_OPTIONS = {"watchdog_time": 0, "save_within": GRACE_SECONDS + _MARGIN_SECONDS}
"""Interactive users may be idle for long, and need time to save before a stop."""

CONTAINER_KINDS = ("shared", "dedicated", "spot")


def kind_of(resource: ResourceSpec | pb.ResourceSpec) -> str:
    """Return the kind of a container: a part of a node, a dedicated node, or a spot node.

    A part of a node always has CPUs or memory. GPUs alone are what a dedicated node must have.
    """
    if resource.is_spot:
        return "spot"
    return "shared" if resource.cpu or resource.memory else "dedicated"


def check_container(spec: pb.TaskSpec, context: SubmitContext, violations: FieldViolations) -> None:
    """Add violations of this server's limits for dev containers."""
    if spec.task_type != TaskType.JUPYTER:
        return
    _check_count(context, violations)
    kind = kind_of(spec.resource)
    limit = context.lifetimes.get(kind, 0)
    if limit and spec.options.lifetime > limit and violations.has_none("options.lifetime"):
        violations.add("options.lifetime", f"is at most {limit} s for {kind} containers here")


def container_options(
    spec: pb.TaskSpec, requested: Mapping[str, Any], lifetimes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the options of a task. Those of a dev container are completed by defaults."""
    if spec.task_type != TaskType.JUPYTER:
        return dict(requested)
    lifetime = int(requested.get("lifetime", 0)) or lifetimes.get(kind_of(spec.resource), 0)
    return {**_DEFAULT_OPTIONS, **requested, "lifetime": lifetime}


def _check_count(context: SubmitContext, violations: FieldViolations) -> None:
    limit = context.containers_allowed
    if limit and context.containers >= limit:
        message = (
            f"{context.user} has {context.containers} dev containers, and {limit} is the limit; "
            "`hai container list` shows them, `hai container delete` ends one"
        )
        violations.add("task_type", message, "QUOTA_EXCEEDED")
