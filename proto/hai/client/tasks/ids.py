"""Ids of tasks as people write them. A number that the contract has no room for is the id of no task."""

from __future__ import annotations

_MOST = 2**63 - 1


def is_id(ref: str) -> bool:
    """True for digits, and nothing else: other scripts have digits too."""
    return ref.isascii() and ref.isdigit()


def possible_id(ref: str) -> int:
    """The id that these digits are; 0, which no task has, for any other word and where they are too many."""
    if not is_id(ref) or len(ref.lstrip("0")) > len(str(_MOST)):
        return 0
    id = int(ref)
    return id if id <= _MOST else 0
