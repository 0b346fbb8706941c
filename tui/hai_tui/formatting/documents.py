"""Converts hai.v1 messages to plain dicts, which `-o json` and `-o yaml` print.

Every field of a message is present under its proto name. Absent messages, absent optional fields and unspecified enums
are null. Enums have their short names (RUNNING), times are RFC 3339 in UTC, 64-bit integers are numbers and not
strings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.taskfile.fields import is_map


def to_dict(message: Message) -> dict[str, Any]:
    """Return the fields of a message by name."""
    fields = cast(Sequence[FieldDescriptor], message.DESCRIPTOR.fields)
    return {field.name: _convert_field(message, field) for field in fields}


def short(enum: EnumDescriptor, number: int) -> str | None:
    """Return RUNNING for TASK_STATE_RUNNING, and None for the unspecified value."""
    if number == 0:
        return None
    value = enum.values_by_number.get(number)
    return value.name.removeprefix(_enum_prefix(enum.name)) if value else str(number)


def _enum_prefix(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() + "_"


def _convert_field(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        return dict(value)
    if field.is_repeated:
        return [_convert_value(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _convert_value(value, field)


def _convert_value(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, Timestamp):
        return value.ToJsonString()
    if isinstance(value, Message):
        return to_dict(value)
    return short(field.enum_type, value) if field.enum_type is not None else value
