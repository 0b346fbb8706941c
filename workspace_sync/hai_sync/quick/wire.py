"""Messages of protobuf by hand, as far as a push with little to do needs them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER, _BYTES = 0, 2


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Of numbered fields, in their order; what is nothing is left out."""
    return b"".join(field(number, value) for number, value in fields if value)


def field(number: int, value: int | str | bytes) -> bytes:
    """One of them."""
    if isinstance(value, int):
        return varint(number << 3 | _NUMBER) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and strings of a message. Raises ValueError for anything else."""
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        value, place = _number(data, place)
        if tag & 7 == _NUMBER:
            yield tag >> 3, value
        elif tag & 7 == _BYTES and place + value <= len(data):
            yield tag >> 3, data[place : place + value]
            place += value
        else:
            raise ValueError("a field of an unexpected kind")


def _number(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data):
        byte = data[place]
        number, shift, place = number | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return number, place
    raise ValueError("the message ends early")
