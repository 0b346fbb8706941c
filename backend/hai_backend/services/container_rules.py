"""Rules for dev containers: what only they may ask for, what they get unasked, and how long they may stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import ResourceSpec, TaskType
from hai_backend.services.rules import Rules
from hai_backend.services.validate_fit import SubmitContext

GRACE_SECONDS = 30.0  # of the notice, unless more or less is asked for
_MARGIN_SECONDS = 2.0  # the agent yields so long before the time to save is over
_OWN = ("idle_timeout", "lifetime")
_UNASKED = {"watchdog_time": 0, "save_within": GRACE_SECONDS + _MARGIN_SECONDS}
"""People think longer than programs hang, and need a moment when they have to leave."""

KINDS = ("shared", "dedicated", "spot")


def kind_of(resource: ResourceSpec) -> str:
    """What a container takes: a share of a node, all of it, or what nobody else wants."""
    if resource.is_spot:
        return "spot"
    return "shared" if resource.gpu or resource.cpu or resource.memory else "dedicated"


def container_options(
    spec: pb.TaskSpec,
    resource: ResourceSpec,
    context: SubmitContext,
    given: Mapping[str, Any],
    rules: Rules,
) -> dict[str, Any]:
    """The options of a task, with what a dev container gets unasked; of other tasks as they were given."""
    if spec.task_type != TaskType.JUPYTER:
        for name in _OWN:
            if given.get(name):
                rules.add(f"options.{name}", "is for dev containers only (task_type jupyter)")
        return dict(given)
    _check_count(context, rules)
    return {**_UNASKED, **given, "lifetime": _lifetime(resource, context, given, rules)}


def _check_count(context: SubmitContext, rules: Rules) -> None:
    most = context.containers_allowed
    if most and context.containers >= most:
        message = (
            f"{context.user} has {context.containers} dev containers, and {most} is the limit; "
            "`hai container list` shows them, `hai container delete` ends one"
        )
        rules.add("task_type", message, "QUOTA_EXCEEDED")


def _lifetime(
    resource: ResourceSpec, context: SubmitContext, given: Mapping[str, Any], rules: Rules
) -> int:
    kind, asked = kind_of(resource), int(given.get("lifetime", 0))
    most = context.lifetimes.get(kind, 0)
    if most and asked > most:
        rules.add("options.lifetime", f"is at most {most} s for {kind} containers here")
    return asked or most
