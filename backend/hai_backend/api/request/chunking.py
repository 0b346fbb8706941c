"""Cuts streams of messages into answers that stay well below the size that clients take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from hai_backend.api.request import limits

M = TypeVar("M", bound=Message)


def by_size(messages: Iterable[M], most: int = limits.BUNDLE_BYTES) -> Iterator[list[M]]:
    """In order; at least one list, maybe empty; a message that is too large travels alone."""
    bundle: list[M] = []
    size = 0
    for message in messages:
        length = message.ByteSize()
        if bundle and size + length > most:
            yield bundle
            bundle, size = [], 0
        bundle.append(message)
        size += length
    yield bundle
