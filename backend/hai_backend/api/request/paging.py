"""Splits lists into pages (AIP-158), and streams into messages that clients accept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import FieldViolations

M = TypeVar("M", bound=Message)
_NUMBER = re.compile(r"[0-9]{0,9}")


def page_size(requested: int, default: int = limits.PAGE_SIZE) -> int:
    """Return how many rows to read for a page. 0 requests the default; larger sizes are reduced. Raises Invalid."""
    _check_size(requested)
    return min(requested or default, limits.PAGE_SIZE)


def read_number(token: str) -> int:
    """Return the number in the token of a list that is sorted by numbers, or 0 for the first page. Raises Invalid."""
    violations = FieldViolations()
    if not _NUMBER.fullmatch(token):
        violations.add("page_token", "is not one of this list")
    violations.raise_if_any()
    return int(token or 0)


def take_page(keyed: Iterable[tuple[str, M]], size: int) -> tuple[list[M], str]:
    """Return the first messages and the token of the next page, which is the key of the last message.

    The token is empty if no messages are left. Raises Invalid.
    """
    _check_size(size)
    page: list[M] = []
    page_bytes, last_key = 0, ""
    for key, message in keyed:
        page_bytes += message.ByteSize()
        if page and (len(page) == size or page_bytes > limits.PAGE_BYTES):
            return page, last_key
        page.append(message)
        last_key = key
    return page, ""


def _check_size(size: int) -> None:
    violations = FieldViolations()
    if size < 0:
        violations.add("page_size", f"must not be negative, and is {size}")
    violations.raise_if_any()


def split_messages(
    messages: Iterable[M], max_bytes: int = limits.BUNDLE_BYTES
) -> Iterator[list[M]]:
    """Yield the messages in order, in lists of at most `max_bytes`. A larger message is alone in its list.

    Yields one empty list if there are no messages.
    """
    bundle: list[M] = []
    size = 0
    for message in messages:
        length = message.ByteSize()
        if bundle and size + length > max_bytes:
            yield bundle
            bundle, size = [], 0
        bundle.append(message)
        size += length
    yield bundle


def split_text(lines: Iterable[str], max_bytes: int = limits.BUNDLE_BYTES) -> Iterator[bytes]:
    """Yield the lines, encoded and joined, in parts of at most `max_bytes`."""
    part = bytearray()
    for line in lines:
        part += line.encode()
        while len(part) >= max_bytes:
            yield bytes(part[:max_bytes])
            del part[:max_bytes]
    yield bytes(part)
