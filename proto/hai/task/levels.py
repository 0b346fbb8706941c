"""Numbers of HAI that programs pass to the SDK."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class EXP_PRIORITY(IntEnum):
    """The priority levels. AUTO means the highest level for which the user has quota."""

    EXTREME_HIGH = 50
    VERY_HIGH = 40
    HIGH = 30
    ABOVE_NORMAL = 20
    NORMAL = 10
    UNDER_NORMAL = 8
    BELOW_NORMAL = 5
    LOW = 0
    AUTO = -1


PRIORITIES = {level.name: int(level) for level in EXP_PRIORITY}
"""Numbers by name, most urgent first."""


class WARN_TYPE(IntFlag):
    """The kinds of warnings in HAI, which disable_warn accepts."""

    COMPLETED = 1
    TERMINATING = 2
    LOG = 4
    INTERRUPT = 8
