"""Refuses requests that contain fields which this server does not know.

A newer client may send a field that a later version added. protobuf ignores such a field silently: a task that should
wait for another one would start at once. Therefore calls that change something are refused. Calls that only read are
answered, because they lose a filter or a page size at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from hai_backend.domain.errors import Invalid, Violation

_MAX_NAMED_BYTES = 64 << 10  # of unknown fields; above this size the error names the request only
_WHY = (
    "this server does not know this field: it is older than the client that sends it;"
    " have the server upgraded, or leave it out"
)


def refuse_unknown(request: Message) -> None:
    """Raise Invalid that names each unknown field by its message and number, from which clients find its name."""
    if size := _unknown_bytes(request):
        names = sorted(set(_unknown_names(request))) if size <= _MAX_NAMED_BYTES else ["request"]
        raise Invalid(tuple(Violation(name, _WHY) for name in names), reason="UNKNOWN_FIELD")


def _unknown_bytes(request: Message) -> int:
    """Return the size of all unknown fields. Every change pays for this, so protobuf counts instead of Python."""
    known = type(request)()
    known.CopyFrom(request)
    known.DiscardUnknownFields()
    return request.ByteSize() - known.ByteSize()


def _unknown_names(message: Message) -> Iterator[str]:
    for unknown in cast(Iterable[Any], UnknownFieldSet(message)):
        yield f"{message.DESCRIPTOR.full_name}.{unknown.field_number}"
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in _messages(value):
                yield from _unknown_names(inner)


def _messages(value: Any) -> Iterable[Message]:
    """Return the messages in the value of a singular, repeated or map field."""
    if isinstance(value, Message):
        return (value,)
    entries = value.values() if hasattr(value, "values") else value
    return (each for each in entries if isinstance(each, Message))
