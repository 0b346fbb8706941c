"""Messages of the contract as values for a page."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def plain(message: Message, *, whole: bool = False) -> dict[str, Any]:
    """Under the names of the contract; `whole`: with the fields that say nothing, too."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=whole
    )
