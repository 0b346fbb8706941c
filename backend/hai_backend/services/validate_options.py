"""Rules for options.*"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import NodeResourceSpec, OptionsSpec, ProfileSpec, ResourceSpec
from hai_backend.services import limits
from hai_backend.services.capacity import GroupCapacity
from hai_backend.services.rules import LABEL, Rules, nearest
from hai_backend.services.validate_fit import SubmitContext

_VENV = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[a-z0-9_-]{1,32}\])?")
_TAG = re.compile(r"[^\s,\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
_SIGNALS = ("", "SIGTERM", "SIGUSR1")
_DEFAULTS = OptionsSpec()


def options(
    spec: pb.TaskSpec, resource: ResourceSpec, context: SubmitContext, rules: Rules
) -> OptionsSpec:
    """options.*"""
    asked = spec.options
    _signal(asked.suspend_signal, rules)
    _git(spec, rules)
    return OptionsSpec(
        whole_life_state=asked.whole_life_state,
        mount_code=_or_default(asked, "mount_code", 2**31 - 1, rules),
        py_venv=_venv(asked.py_venv, rules),
        override_node_resource=_override(asked, rules),
        profile=_profile(asked, rules),
        tags=tags("options.tags", asked.tags, rules),
        watchdog_time=_or_default(asked, "watchdog_time", limits.SECONDS, rules),
        record_git_revision=asked.record_git_revision,
        shared_in_group=asked.shared_in_group,
        assigned_nodes=_assigned(asked.assigned_nodes, resource, context, rules),
        sidecar=_sidecars(asked.sidecar, rules),
        fffs_enable_fuse=asked.fffs_enable_fuse,
        timeout=rules.number("options.timeout", asked.timeout, 0, limits.SECONDS),
        time_limit=rules.number("options.time_limit", asked.time_limit, 0, limits.SECONDS),
        max_retries=rules.number("options.max_retries", asked.max_retries, 0, limits.RETRIES),
        suspend_signal=asked.suspend_signal,
        ack_within=_seconds(asked, "ack_within", limits.ACK_SECONDS, rules),
        save_within=_seconds(asked, "save_within", limits.SAVE_SECONDS, rules),
        env_fallback=asked.env_fallback,
    )


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


def _or_default(asked: pb.OptionsSpec, name: str, most: int, rules: Rules) -> int:
    value: int = getattr(asked if asked.HasField(name) else _DEFAULTS, name)  # type: ignore[arg-type]
    return rules.number(f"options.{name}", value, 0, most)


def _seconds(asked: pb.OptionsSpec, name: str, most: float, rules: Rules) -> float:
    value: float = getattr(asked if asked.HasField(name) else _DEFAULTS, name)  # type: ignore[arg-type]
    return rules.seconds(f"options.{name}", value, most)


def _signal(value: str, rules: Rules) -> None:
    if value not in _SIGNALS:
        rules.add("options.suspend_signal", f"{value[:40]!r} must be SIGTERM, SIGUSR1 or empty")


def _git(spec: pb.TaskSpec, rules: Rules) -> None:
    if spec.options.record_git_revision and spec.spec.git_remote_repo:
        rules.add("options.record_git_revision", "excludes spec.git_remote_repo; leave one out")


def _venv(value: str, rules: Rules) -> str:
    if value:
        rules.matching("options.py_venv", value, _VENV, "an environment's name, or name[owner]")
    return value


def _override(asked: pb.OptionsSpec, rules: Rules) -> NodeResourceSpec | None:
    if not asked.HasField("override_node_resource"):
        return None
    path, given = "options.override_node_resource", asked.override_node_resource
    return NodeResourceSpec(
        cpu=rules.number(f"{path}.cpu", given.cpu, 0, limits.CPUS),
        memory=rules.number(f"{path}.memory", given.memory, 0, limits.MEMORY_GB),
    )


def _profile(asked: pb.OptionsSpec, rules: Rules) -> ProfileSpec | None:
    if not asked.HasField("profile"):
        return None
    path, given = "options.profile", asked.profile
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


def _sidecars(names: Sequence[str], rules: Rules) -> tuple[str, ...]:
    for i, name in enumerate(names):
        rules.matching(
            f"options.sidecar[{i}]", name, LABEL, "at most 63 of a-z, 0-9 and -, no - at an end"
        )
    return tuple(names)


def _assigned(
    names: Sequence[str], resource: ResourceSpec, context: SubmitContext, rules: Rules
) -> tuple[str, ...]:
    field = "options.assigned_nodes"
    if not names:
        return ()
    if not context.has_right("assign_nodes"):
        rules.add(
            field, f"{context.user} lacks the right assign_nodes; an admin can give it", "DENIED"
        )
    if len(set(names)) != len(names):
        rules.add(field, "names a node twice")
    if len(names) != resource.node_count:
        rules.add(
            field, f"names {len(names)} nodes, but resource.node_count is {resource.node_count}"
        )
    if (group := context.capacity.get(resource.group)) is not None:
        for i, name in enumerate(names):
            _assigned_node(f"{field}[{i}]", name, group, resource.zone, rules)
    return tuple(names)


def _assigned_node(path: str, name: str, group: GroupCapacity, zone: str, rules: Rules) -> None:
    node = group.nodes.get(name)
    if node is None:
        rules.add(
            path,
            f"group {group.name} has no node {name[:64]!r}{nearest(name, group.nodes)}",
            "NO_SUCH_NODE",
        )
    elif zone and node.zone != zone:
        rules.add(path, f"node {name} is not in zone {zone}", "NO_SUCH_NODE")
