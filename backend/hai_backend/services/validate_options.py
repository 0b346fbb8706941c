"""Rules for options.*"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import (
    AfterOutcome,
    AfterSpec,
    NodeResourceSpec,
    OptionsSpec,
    ProfileSpec,
    ResourceSpec,
)
from hai_backend.domain.words import counted
from hai_backend.services import limits
from hai_backend.services.capacity import GroupCapacity
from hai_backend.services.container_rules import container_options
from hai_backend.services.rules import LABEL, Rules, nearest
from hai_backend.services.validate_fit import SubmitContext

_VENV = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[a-z0-9_-]{1,32}\])?")
_TAG = re.compile(r"[^\s,\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
_SIGNALS = ("", "SIGTERM", "SIGUSR1")

Check = Callable[[str, Any, Rules], object]  # path, what is given there


def options(
    spec: pb.TaskSpec, resource: ResourceSpec, context: SubmitContext, rules: Rules
) -> OptionsSpec:
    """options.*: fields are asked for only when they are given; the others keep their defaults."""
    _git(spec, rules)
    given: dict[str, Any] = {field.name: value for field, value in spec.options.ListFields()}
    for name, value in given.items():
        if check := _CHECKS.get(name):
            given[name] = check(f"options.{name}", value, rules)
    given = container_options(spec, resource, context, given, rules)
    if names := given.get("assigned_nodes"):
        given["assigned_nodes"] = _assigned(names, resource, context, rules)
    return OptionsSpec(**given)


def tags(field: str, values: Sequence[str], rules: Rules) -> tuple[str, ...]:
    """Labels that people may set: those with an underscore first belong to the platform."""
    if len(values) > limits.TAGS:
        rules.add(field, f"has {len(values)} tags; at most {limits.TAGS} are allowed")
        return ()
    for i, tag in enumerate(values):
        if tag.startswith("_"):
            rules.add(
                f"{field}[{i}]",
                f"{tag[:40]!r} may not begin with an underscore: those are the platform's",
            )
        elif not _TAG.fullmatch(tag):
            rules.add(
                f"{field}[{i}]",
                f"{tag[:40]!r} must be a word without blanks, commas and control characters",
            )
        rules.text(f"{field}[{i}]", tag, limits.TAG_CHARS)
    return tuple(dict.fromkeys(values))


def _number(most: int) -> Check:
    return lambda field, value, rules: rules.number(field, value, 0, most)


def _seconds(most: float) -> Check:
    return lambda field, value, rules: rules.seconds(field, value, most)


def _signal(field: str, value: str, rules: Rules) -> str:
    if value not in _SIGNALS:
        rules.add(field, f"{value[:40]!r} must be SIGTERM, SIGUSR1 or empty")
    return value


def _git(spec: pb.TaskSpec, rules: Rules) -> None:
    if spec.options.record_git_revision and spec.spec.git_remote_repo:
        rules.add("options.record_git_revision", "excludes spec.git_remote_repo; leave one out")


def _venv(field: str, value: str, rules: Rules) -> str:
    return rules.matching(field, value, _VENV, "an environment's name, or name[owner]")


def _override(path: str, given: pb.NodeResourceSpec, rules: Rules) -> NodeResourceSpec:
    return NodeResourceSpec(
        cpu=rules.number(f"{path}.cpu", given.cpu, 0, limits.CPUS),
        memory=rules.number(f"{path}.memory", given.memory, 0, limits.MEMORY_GB),
    )


def _profile(path: str, given: pb.ProfileSpec, rules: Rules) -> ProfileSpec:
    for name, seconds in given.interval.items():
        rules.number(f"{path}.interval[{name[:64]}]", seconds, 1, limits.SECONDS)
    return ProfileSpec(
        time=rules.number(f"{path}.time", given.time, 0, limits.SECONDS),
        recorder=rules.line(f"{path}.recorder", given.recorder, limits.IMAGE_CHARS),
        interval=dict(given.interval),
        warmup=rules.number(f"{path}.warmup", given.warmup, 0, limits.SECONDS),
        trace=given.trace,
        follow_task=given.follow_task,
    )


def _sidecars(field: str, names: Sequence[str], rules: Rules) -> tuple[str, ...]:
    for i, name in enumerate(names):
        rules.matching(f"{field}[{i}]", name, LABEL, "at most 63 of a-z, 0-9 and -, no - at an end")
    return tuple(names)


def _assigned(
    names: Sequence[str], resource: ResourceSpec, context: SubmitContext, rules: Rules
) -> tuple[str, ...]:
    field = "options.assigned_nodes"
    if not context.has_right("assign_nodes"):
        rules.add(
            field, f"{context.user} lacks the right assign_nodes; an admin can give it", "DENIED"
        )
    if len(set(names)) != len(names):
        rules.add(field, "names a node twice")
    if len(names) != resource.node_count:
        rules.add(
            field,
            f"names {counted(len(names), 'node')}, but resource.node_count is {resource.node_count}",
        )
    if (group := context.capacity.get(resource.group)) is not None:
        _in_group(names, group, resource.zone, rules)
    return tuple(names)


def _in_group(names: Sequence[str], group: GroupCapacity, zone: str, rules: Rules) -> None:
    unknown = next((name for name in names if name not in group.nodes), "")
    meant = nearest(unknown, group.nodes)
    for i, name in enumerate(names):
        node, path = group.nodes.get(name), f"options.assigned_nodes[{i}]"
        if node is None:
            hint = meant if name == unknown else ""
            rules.add(path, f"group {group.name} has no node {name[:64]!r}{hint}", "NO_SUCH_NODE")
        elif zone and node.zone != zone:
            rules.add(path, f"node {name} is not in zone {zone}", "NO_SUCH_NODE")


def _after(field: str, given: Sequence[pb.AfterSpec], rules: Rules) -> tuple[AfterSpec, ...]:
    """Whether they are there, and to be seen, is asked elsewhere."""
    given = rules.few(field, given, limits.PREDECESSORS)
    if len({after.task for after in given}) != len(given):
        rules.add(field, "names a task twice")
    found = []
    for i, after in enumerate(given):
        path, default = f"{field}[{i}]", AfterOutcome.SUCCEEDED
        number = rules.number(f"{path}.task", after.task, 1, 2**63 - 1)
        outcome = rules.choice(f"{path}.outcome", after.outcome, AfterOutcome, default)
        found.append(AfterSpec(number, outcome))
    return tuple(found)


_CHECKS: dict[str, Check] = {
    "mount_code": _number(2**31 - 1),
    "py_venv": _venv,
    "override_node_resource": _override,
    "profile": _profile,
    "tags": tags,
    "watchdog_time": _number(limits.SECONDS),
    "sidecar": _sidecars,
    "timeout": _number(limits.SECONDS),
    "time_limit": _number(limits.SECONDS),
    "max_retries": _number(limits.RETRIES),
    "suspend_signal": _signal,
    "ack_within": _seconds(limits.ACK_SECONDS),
    "save_within": _seconds(limits.SAVE_SECONDS),
    "idle_timeout": _number(limits.SECONDS),
    "lifetime": _number(limits.SECONDS),
    "after": _after,
}
