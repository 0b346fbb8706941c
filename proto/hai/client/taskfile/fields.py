"""Facts about the fields of a task spec that message descriptors do not have, such as allowed words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hai.v1.task_spec_pb2 import TaskSpec

_ON_END = ("restart", "complete", "fail", "ignore")

ENUMS: Mapping[str, tuple[str, ...]] = {
    "TaskSpec.task_type": ("training", "jupyter"),
    "ServiceSpec.type": ("http", "tcp", "local"),
    "OptionsSpec.suspend_signal": ("", "SIGTERM", "SIGUSR1"),
    "OptionsSpec.durable": ("", "after_leaving", "before_leaving"),
    "AfterSpec.outcome": ("succeeded", "failed", "ended"),
    "PolicySpec.on_pod_failed": _ON_END,
    "PolicySpec.on_pod_evicted": _ON_END,
    "PolicySpec.on_role_completed": _ON_END,
}
"""Fields whose text must be one of a few words."""

REFUSED_TASK_TYPES: Mapping[str, str] = {
    "virtual": "every task here runs a program; leave task_type out, and hold tasks together with options.tags",
    "validation": "it has no meaning here yet; leave task_type out, and name nodes in options.assigned_nodes",
    "background": "a task here always has its nodes to itself; leave task_type out, and ask for priority LOW",
    "upgrade": "HAI itself has replaced it; leave task_type out",
}
"""Task types of HAI's task files that have no meaning here, with what to do instead."""

PRIORITY = "TaskSpec.priority"
# fields that also take durations such as 2h30m
DURATIONS = frozenset({"OptionsSpec.time_limit", "OptionsSpec.timeout"})
# lists that may be given as one string, which is split as by a shell
SHELL_SPLIT = frozenset({"ProgramSpec.parameters", "RoleSpec.parameters"})
# lists that may be given as one string, which is split at commas
COMMA_SPLIT = frozenset({"OptionsSpec.tags"})
# required fields by message
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "TaskSpec": ("version", "name", "spec"),
    "ProgramSpec": ("entrypoint",),
    "ServiceSpec": ("name",),
    "RoleSpec": ("name", "count"),
    "AfterSpec": ("task",),
}
WITHOUT_EFFECT = frozenset(
    {"profile", "override_node_resource", "record_git_revision", "sidecar", "fffs_enable_fuse"}
)
"""Fields of `options` that are accepted without effect, because HAI's task files have them."""

VERSION = 2

DURATION_PATTERN = (
    r"^([0-9]+|(?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?"
    r"|([0-9]+-)?[0-9]+:[0-5]?[0-9]:[0-5]?[0-9]|[0-9]+:[0-5]?[0-9])$"
)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def descriptor(message: Message) -> Descriptor:
    """Return the descriptor of a message. The stubs have two names for its class, hence the cast."""
    return cast(Descriptor, message.DESCRIPTOR)


def message_type_of(field: FieldDescriptor) -> Descriptor:
    """Return the message type of a field that holds messages or a map."""
    assert field.message_type is not None
    return field.message_type


def message_name_of(field: FieldDescriptor) -> str:
    """Return the name of the message that a field belongs to."""
    assert field.containing_type is not None
    return field.containing_type.name


def map_value_field(field: FieldDescriptor) -> FieldDescriptor:
    """Return the field that describes the values of a map."""
    return message_type_of(field).fields_by_name["value"]


def field_key(field: FieldDescriptor) -> str:
    """Return the name of a field in the tables of this package: Message.field."""
    return f"{message_name_of(field)}.{field.name}"


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def message_fields(message: Descriptor) -> dict[str, FieldDescriptor]:
    """Return the fields of a message by name, in the order of the contract."""
    return {field.name: field for field in message.fields}


def paths(message: Descriptor = TaskSpec.DESCRIPTOR, prefix: str = "") -> list[str]:
    """Return the path of every field: name, spec.entrypoint, services[].port …"""
    result: list[str] = []
    for field in message.fields:
        path = f"{prefix}{field.name}"
        result.append(path)
        if field.message_type is not None and not is_map(field):
            result += paths(field.message_type, f"{path}[]." if field.is_repeated else f"{path}.")
    return result


def without_effect(spec: TaskSpec) -> list[str]:
    """Return the paths of fields in `options` that are set and have no effect."""
    set_names = (field.name for field, _ in spec.options.ListFields())
    return [f"options.{name}" for name in set_names if name in WITHOUT_EFFECT]


def refused_task_type(word: str) -> str:
    """Return why a task type of HAI is refused, and what to do; empty if it is none of these types."""
    instead = REFUSED_TASK_TYPES.get(word)
    return f"{word} is not supported: {instead}" if instead else ""


def parse_duration(text: str) -> int | None:
    """Return a duration (90, 90s, 2h30m, 1d, MM:SS, HH:MM:SS or D-HH:MM:SS) in seconds, or None for other text."""
    if not re.fullmatch(DURATION_PATTERN[1:-1], text, re.ASCII):
        return None
    if text.isdigit():
        return int(text)
    if ":" not in text:
        return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([dhms])", text))
    days, _, clock = text.rpartition("-")
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return int(days or 0) * _UNITS["d"] + total
