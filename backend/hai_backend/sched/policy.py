"""What an operator may choose about scheduling: one frozen value, passed to every pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hai_backend.domain.priority import Priority


@dataclass(frozen=True, slots=True)
class Demotion:
    """After `after_seconds` of one run, the run counts as `to`; the task's own level returns with its next run."""

    to: Priority
    after_seconds: float


_DEMOTION: Mapping[Priority, Demotion] = MappingProxyType(
    {Priority.ABOVE_NORMAL: Demotion(Priority.NORMAL, after_seconds=1800.0)}
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults are those of HAI's manual."""

    demotion: Mapping[Priority, Demotion] = field(default_factory=lambda: _DEMOTION)

    # Quota in nodes for a user without a row for (group, level); None: unlimited.
    default_quota: int | None = None

    # AUTO takes the highest level for which the user has a quota row with room. This level is the one that it may
    # use without a row, so that unlimited users do not all run at EXTREME_HIGH.
    auto_level_when_unlimited: Priority = Priority.NORMAL

    # What a suspension costs a node beside the work since its checkpoint: leaving, starting again, loading.
    restart_seconds: float = 60.0

    # How many of the tasks before it a waiting task is told.
    ahead_limit: int = 20
