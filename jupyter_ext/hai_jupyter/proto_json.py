"""Converts protobuf messages to JSON values."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def to_json_value(message: Message, *, whole: bool = False) -> dict[str, Any]:
    """Keeps the field names of the contract; `whole`: includes fields with default values."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=whole
    )
