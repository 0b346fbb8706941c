"""Writes a TaskSpec as yaml that reads back as the same message, whatever bytes its strings contain."""

from __future__ import annotations

import re
from typing import Any

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from hai.client.taskfile import fields
from hai.v1.task_spec_pb2 import TaskSpec

_FRAGILE = re.compile("[\\x00-\\x1f\\x7f-\\xa0\\u2028\\u2029\\ufeff]")


def to_yaml(spec: TaskSpec) -> str:
    """Return the spec as yaml text. Fields that are not set are left out, unless the schema requires them."""
    return yaml.dump(
        to_mapping(spec), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1
    )


class _Dumper(yaml.SafeDumper):
    """Writes equal values twice instead of using anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape text with line breaks or unprintable characters, since YAML preserves all of it only in quotes."""
        style = '"' if _FRAGILE.search(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def to_mapping(message: Message) -> dict[str, Any]:
    """Return the message as plain values, in the order of the contract."""
    required = fields.REQUIRED.get(message.DESCRIPTOR.name, ())
    return {
        field.name: _plain_value(field, getattr(message, field.name))
        for field in fields.descriptor(message).fields
        if field.name in required or _is_set(message, field)
    }


def _is_set(message: Message, field: FieldDescriptor) -> bool:
    if field.is_repeated:
        return len(getattr(message, field.name)) > 0
    if field.has_presence:
        return message.HasField(field.name)
    return bool(getattr(message, field.name))


def _plain_value(field: FieldDescriptor, value: Any) -> Any:
    if fields.is_map(field):
        return {key: value[key] for key in sorted(value)}
    if field.is_repeated:
        return [_plain_single(field, item) for item in value]
    return _plain_single(field, value)


def _plain_single(field: FieldDescriptor, value: Any) -> Any:
    return to_mapping(value) if field.message_type is not None else value
