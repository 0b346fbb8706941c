"""How many nodes a user may use in a group, at each level and in total.

Runs count from their start until their nodes are free, at the level at which they were started; starts and promises of
this pass are added. So a user never uses more than a row allows.
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
    """A row that limits a task, in units. `row` is AUTO for the limit over all levels."""

    row: Priority
    allowed: int
    used: int

    @property
    def available(self) -> int:
        return self.allowed - self.used


class Quotas:
    """Limits of all users in one group, and what they use there."""

    def __init__(self, rows: Iterable[QuotaRow], policy: Policy) -> None:
        self._policy = policy
        self._rows: dict[str, dict[Priority, int]] = {}
        self._used: dict[tuple[str, Priority], int] = {}
        for row in rows:
            of_user = self._rows.setdefault(row.user, {})
            of_user[row.priority] = max(of_user.get(row.priority, 0), row.nodes * UNIT)

    def add_used(self, user: str, level: Priority, units: int) -> None:
        """Count units as used by the user at a level, and in total; negative: as released."""
        for row in (level, Priority.AUTO):
            self._used[user, row] = self._used.get((user, row), 0) + units

    def uses_any(self, user: str) -> bool:
        """True when the user has nodes in the group."""
        return self._used.get((user, Priority.AUTO), 0) > 0

    def limits(self, user: str, level: Priority) -> list[Limit]:
        """The limits of the user at a level; none: unlimited."""
        rows = self._rows.get(user, {})
        default = self._policy.default_quota
        if not rows and default is None:
            return []
        found = [(level, rows.get(level, None if default is None else default * UNIT))]
        found.append((Priority.AUTO, rows.get(Priority.AUTO)))
        return [
            Limit(r, most, self._used.get((user, r), 0)) for r, most in found if most is not None
        ]

    def candidates(self, user: str) -> list[Priority]:
        """The levels that AUTO may become, best first."""
        rows = self._rows.get(user, {})
        free = self._policy.auto_level_when_unlimited
        return [level for level in LEVELS if level in rows or level == free]


def allows(limits: Iterable[Limit], units: int) -> bool:
    """True when the limits allow so many units at all."""
    return all(limit.allowed >= units for limit in limits)


def fits(limits: Iterable[Limit], units: int) -> bool:
    """True when the limits allow so many more units now."""
    return all(limit.available >= units for limit in limits)
