"""The numbers of HAI that programs pass to the SDK."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class EXP_PRIORITY(IntEnum):
    """The nine levels of urgency; AUTO is the highest that the user's quota has room for."""

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
    """Kinds of warnings in HAI; disable_warn accepts them."""

    COMPLETED = 1
    TERMINATING = 2
    LOG = 4
    INTERRUPT = 8
