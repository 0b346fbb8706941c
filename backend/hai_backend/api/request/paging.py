"""One page of a list: as much of it as was asked for, and as one answer holds (AIP-158)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import Message

from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import Rules

M = TypeVar("M", bound=Message)
_NUMBER = re.compile(r"[0-9]{0,9}")


def size(asked: int, default: int = limits.PAGE_SIZE) -> int:
    """Rows to read for a page. 0: the default; more than the most: the most. Raises Invalid."""
    _check(asked)
    return min(asked or default, limits.PAGE_SIZE)


def number(token: str) -> int:
    """The last one of the page before, in a list by numbers; 0: there was none. Raises Invalid."""
    rules = Rules()
    if not _NUMBER.fullmatch(token):
        rules.add("page_token", "is not one of this list")
    rules.check()
    return int(token or 0)


def page(keyed: Iterable[tuple[str, M]], asked: int) -> tuple[list[M], str]:
    """The first of them, and the token of the next page: the last one's key; empty: that is all. Raises Invalid."""
    _check(asked)
    found: list[M] = []
    taken, last = 0, ""
    for key, message in keyed:
        taken += message.ByteSize()
        if found and (len(found) == asked or taken > limits.PAGE_BYTES):
            return found, last
        found.append(message)
        last = key
    return found, ""


def _check(asked: int) -> None:
    rules = Rules()
    if asked < 0:
        rules.add("page_size", f"must not be negative, and is {asked}")
    rules.check()
