"""How many nodes a user may use in a group, at each level and in total.

A run counts from its start until its nodes are free, at the level at which it was started. Starts and promises of the
current pass count too, so a user never uses more nodes than a row allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Limit:
    """A row that limits a task, in units of quota. `row` is AUTO for the limit over all levels."""

    row: Priority
    allowed: int
    used: int

    @property
    def available(self) -> int:
        return self.allowed - self.used


class Quotas:
    """The limits of all users in one group, and what the users use there."""

    def __init__(self, rows: Iterable[QuotaRow], policy: Policy) -> None:
        self._policy = policy
        self._rows: dict[str, dict[Priority, int]] = {}
        self._used: dict[tuple[str, Priority], int] = {}
        for row in rows:
            of_user = self._rows.setdefault(row.user, {})
            of_user[row.priority] = max(of_user.get(row.priority, 0), row.nodes * UNIT)

    def add_used(self, user: str, level: Priority, units: int) -> None:
        """Add units, which may be negative, to what the user uses at a level and in total."""
        for row in (level, Priority.AUTO):
            self._used[user, row] = self._used.get((user, row), 0) + units

    def uses_any(self, user: str) -> bool:
        """Return whether the user has nodes in the group."""
        return self._used.get((user, Priority.AUTO), 0) > 0

    def limits(self, user: str, level: Priority) -> list[Limit]:
        """Return the limits of the user at a level; an empty list means that there is no limit."""
        rows = self._rows.get(user, {})
        default = self._policy.default_quota
        if not rows and default is None:
            return []
        found = [(level, rows.get(level, None if default is None else default * UNIT))]
        found.append((Priority.AUTO, rows.get(Priority.AUTO)))
        return [
            Limit(r, most, self._used.get((user, r), 0)) for r, most in found if most is not None
        ]

    def auto_levels(self, user: str) -> list[Priority]:
        """Return the levels that AUTO may be resolved to, the highest first."""
        rows = self._rows.get(user, {})
        free = self._policy.auto_level_when_unlimited
        return [level for level in LEVELS if level in rows or level == free]


def allows(limits: Iterable[Limit], units: int) -> bool:
    """Return whether the limits allow so many units if the user uses nothing else."""
    return all(limit.allowed >= units for limit in limits)


def fits(limits: Iterable[Limit], units: int) -> bool:
    """Return whether the limits allow so many more units now."""
    return all(limit.available >= units for limit in limits)
