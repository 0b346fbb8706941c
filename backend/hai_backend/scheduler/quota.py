"""How many nodes may this user hold, at which level.

Held is what stands on nodes now, leaving runs included, counted at the level at which each run was started; starts and
promises of this pass are added. So at no instant does a user hold more than a row allows. A part of a node weighs what
it takes of the group's largest node, in its scarcest resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, SchedTask
from hai_backend.scheduler.capacity.resources import Amount
from hai_backend.scheduler.policy.policy import Policy

if TYPE_CHECKING:
    from hai_backend.scheduler.queue.queue import Waiting

UNIT = 1_000_000
"""Weight of one whole node; integers, so that sums are exact."""


def units_of(count: int, ask: Amount | None, largest: Amount) -> int:
    """What `count` ranks weigh; `ask` None: whole nodes."""
    if ask is None:
        return count * UNIT
    shares = [a * UNIT // most for a, most in zip(ask, largest, strict=True) if most > 0]
    return count * min(UNIT, max([1, *shares]))


@dataclass(frozen=True, slots=True)
class Limit:
    """The tightest row for a task, in units: `row` is AUTO for the limit over all levels."""

    row: Priority
    allowed: int
    held: int

    @property
    def room(self) -> int:
        return self.allowed - self.held


class Quotas:
    """Limits of all users in one group, and what they hold there."""

    def __init__(self, rows: Iterable[QuotaRow], policy: Policy) -> None:
        self._policy = policy
        self._rows: dict[str, dict[Priority, int]] = {}
        self._held: dict[tuple[str, Priority], int] = {}
        for row in rows:
            of_user = self._rows.setdefault(row.user, {})
            of_user[row.priority] = max(of_user.get(row.priority, 0), row.nodes * UNIT)

    def hold(self, user: str, level: Priority, units: int) -> None:
        """Count nodes as held by the user at a level, and in total; negative: as released."""
        for row in (level, Priority.AUTO):
            self._held[user, row] = self._held.get((user, row), 0) + units

    def holds(self, user: str) -> bool:
        """True when the user holds anything in the group."""
        return self._held.get((user, Priority.AUTO), 0) > 0

    def limits(self, user: str, level: Priority) -> list[Limit]:
        """The limits that bind the user at a level; none: unlimited."""
        rows = self._rows.get(user, {})
        default = self._policy.default_quota
        if not rows and default is None:
            return []
        found = [(level, rows.get(level, None if default is None else default * UNIT))]
        found.append((Priority.AUTO, rows.get(Priority.AUTO)))
        return [
            Limit(r, most, self._held.get((user, r), 0)) for r, most in found if most is not None
        ]

    def candidates(self, user: str) -> list[Priority]:
        """The levels that AUTO may become, best first."""
        rows = self._rows.get(user, {})
        free = self._policy.auto_level_when_unlimited
        return [level for level in LEVELS if level in rows or level == free]


def allows(limits: Iterable[Limit], units: int) -> bool:
    """True when the limits could ever be met, were nothing held."""
    return all(limit.allowed >= units for limit in limits)


def has_room(limits: Iterable[Limit], units: int) -> bool:
    """True when the limits are met now."""
    return all(limit.room >= units for limit in limits)


def auto_levels(
    user: str, autos: Iterable[Waiting], quotas: Quotas
) -> Iterator[tuple[Waiting, Priority]]:
    """The level of each waiting AUTO task of a user: the first ones get the highest, the surplus lower ones."""
    levels = quotas.candidates(user)
    if len(levels) == 1:
        return
    limits = {level: quotas.limits(user, level) for level in levels}
    claims: dict[Priority, int] = {}
    known: dict[int, _Rungs] = {}
    for waiting in sorted(autos, key=lambda waiting: own_order(waiting.task)):
        units = waiting.need.units
        rungs = known.get(units)
        if rungs is None:
            rungs = known[units] = _Rungs(units, limits)
        level = rungs.level(claims)
        for row in (level, Priority.AUTO) if rungs.possible else ():
            claims[row] = claims.get(row, 0) + units
        yield waiting, level


class _Rungs:
    """The levels for tasks of one weight. The claims of others only grow: a level without room stays so."""

    def __init__(self, units: int, limits: Mapping[Priority, list[Limit]]) -> None:
        self._units = units
        self._limits = limits
        self.possible = [level for level, rows in limits.items() if allows(rows, units)]
        self._with_room = list(self.possible)

    def level(self, claims: Mapping[Priority, int]) -> Priority:
        """The highest one with room beside the claims; else the lowest possible one."""
        while self._with_room and not self._has_room(self._with_room[0], claims):
            del self._with_room[0]
        return self._with_room[0] if self._with_room else (self.possible or [*self._limits])[-1]

    def _has_room(self, level: Priority, claims: Mapping[Priority, int]) -> bool:
        rows = self._limits[level]
        return all(limit.room >= self._units + claims.get(limit.row, 0) for limit in rows)


def own_order(task: SchedTask) -> tuple[float, float, int]:
    """The order that a user gives to own tasks: the rank set by hand, then first submission."""
    return (task.custom_rank, task.created_at, task.id)
