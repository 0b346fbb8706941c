"""Rules of this cluster for dev containers: how many, how long they may stay, and what they get unasked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.request.rules import Rules
from hai_backend.api.tasks.validation.fit import SubmitContext
from hai_backend.domain.spec import ResourceSpec, TaskType

GRACE_SECONDS = 30.0  # of the notice, unless more or less is asked for
_MARGIN_SECONDS = 2.0  # the agent yields so long before the time to save is over
_UNASKED = {"watchdog_time": 0, "save_within": GRACE_SECONDS + _MARGIN_SECONDS}
"""People think longer than programs hang, and need a moment when they have to leave."""

KINDS = ("shared", "dedicated", "spot")


def kind_of(resource: ResourceSpec | pb.ResourceSpec) -> str:
    """What a container takes: a share of a node, all of it, or what nobody else wants."""
    if resource.is_spot:
        return "spot"
    return "shared" if resource.gpu or resource.cpu or resource.memory else "dedicated"


def check_container(spec: pb.TaskSpec, context: SubmitContext, rules: Rules) -> None:
    """Add what a dev container asks for beyond what this server allows."""
    if spec.task_type != TaskType.JUPYTER:
        return
    _check_count(context, rules)
    kind = kind_of(spec.resource)
    most = context.lifetimes.get(kind, 0)
    if most and spec.options.lifetime > most and rules.ok("options.lifetime"):
        rules.add("options.lifetime", f"is at most {most} s for {kind} containers here")


def container_options(
    spec: pb.TaskSpec, given: Mapping[str, Any], lifetimes: Mapping[str, int]
) -> dict[str, Any]:
    """The options of a task, with what a dev container gets unasked; of other tasks as they were given."""
    if spec.task_type != TaskType.JUPYTER:
        return dict(given)
    lifetime = int(given.get("lifetime", 0)) or lifetimes.get(kind_of(spec.resource), 0)
    return {**_UNASKED, **given, "lifetime": lifetime}


def _check_count(context: SubmitContext, rules: Rules) -> None:
    most = context.containers_allowed
    if most and context.containers >= most:
        message = (
            f"{context.user} has {context.containers} dev containers, and {most} is the limit; "
            "`hai container list` shows them, `hai container delete` ends one"
        )
        rules.add("task_type", message, "QUOTA_EXCEEDED")
