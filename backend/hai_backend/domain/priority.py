"""The priority levels."""

from __future__ import annotations

from enum import IntEnum


class Priority(IntEnum):
    """The levels, with the names and numbers of HAI. AUTO is resolved to the highest level with free quota."""

    EXTREME_HIGH = 50
    VERY_HIGH = 40
    HIGH = 30
    ABOVE_NORMAL = 20
    NORMAL = 10
    UNDER_NORMAL = 8
    BELOW_NORMAL = 5
    LOW = 0
    AUTO = -1

    # The __hash__ of Enum is a slow Python function, and the scheduler has many tables by level.
    __hash__ = int.__hash__


LEVELS: tuple[Priority, ...] = tuple(p for p in Priority if p is not Priority.AUTO)
"""All levels but AUTO, most urgent first."""
