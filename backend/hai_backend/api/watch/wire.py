"""Assembles protobuf messages from parts that are encoded already.

An encoded message is the concatenation of its encoded fields. A task that a hundred streams send is therefore encoded
once, and each response is joined from such parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from hai_backend.api.server.call_context import Handler

_VARINT, _LENGTH_DELIMITED = 0, 2  # wire types of protobuf


def message_field(number: int, encoded: bytes) -> bytes:
    """Return the encoding of a field that contains this encoded message."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(encoded)) + encoded


def integer_field(number: int, value: int) -> bytes:
    """Return the encoding of an int64 field. The value must not be negative."""
    return _varint(number << 3 | _VARINT) + _varint(value)


def join_fields(fields: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield the fields in order, joined in parts of at most `max_bytes`. A larger field is alone in its part.

    Yields one empty part if there are no fields.
    """
    part, size = list[bytes](), 0
    for field in fields:
        if part and size + len(field) > max_bytes:
            yield b"".join(part)
            part, size = [], 0
        part.append(field)
        size += len(field)
    yield b"".join(part)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def accept_encoded(handler: Handler) -> Handler:
    """Return the handler of a stream that may yield encoded responses as well as messages."""
    method: Any = handler.unary_stream
    return grpc.unary_stream_rpc_method_handler(method, handler.request_deserializer, _encode)


def _encode(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
