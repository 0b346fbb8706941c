"""The nine levels of urgency."""

from __future__ import annotations

from enum import IntEnum


class Priority(IntEnum):
    """Names and numbers as in HAI; AUTO means the highest level that the user's quota has room for."""

    EXTREME_HIGH = 50
    VERY_HIGH = 40
    HIGH = 30
    ABOVE_NORMAL = 20
    NORMAL = 10
    UNDER_NORMAL = 8
    BELOW_NORMAL = 5
    LOW = 0
    AUTO = -1

    # Enum's own is a Python function, and every table of the scheduler is by level.
    __hash__ = int.__hash__


LEVELS: tuple[Priority, ...] = tuple(p for p in Priority if p is not Priority.AUTO)
"""All levels but AUTO, most urgent first."""
