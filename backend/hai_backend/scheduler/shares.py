"""How a node group is divided among user groups: what is guaranteed, what weights give, and what lies beyond.

Nobody's part stands idle: who is beyond it uses what others leave, and gives it back when they want it. Parts matter
among tasks of one level only; levels are rationed by quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.scheduler.capacity.slots import Holder
from hai_backend.scheduler.queue.queue import Waiting
from hai_backend.scheduler.quota import UNIT


class Tier(IntEnum):
    """Who comes first within a level, and may take from whom."""

    GUARANTEED = 0
    WEIGHTED = 1
    BEYOND = 2


class Shares:
    """Of one node group. What runs hold counts against a limit until it is free, as a part until they leave."""

    def __init__(self, rows: Iterable[ShareRow] = ()) -> None:
        self._rows = {row.name: row for row in rows}
        self._of = {user: row.name for row in self._rows.values() for user in row.users}
        self._held = dict.fromkeys([*self._rows, ""], 0)
        self._kept = dict.fromkeys([*self._rows, ""], 0)
        self._bounds: dict[str, tuple[int, int]] = {"": (0, 0)}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def divide(self, capacity: int) -> None:
        """Say what each part comes to; the capacity is that of the nodes that may be used, in units."""
        rows = self._rows.values()
        rest = max(0, capacity - sum(row.guaranteed for row in rows) * UNIT)
        weights = sum(row.weight for row in rows)
        for row in rows:
            certain = row.guaranteed * UNIT
            self._bounds[row.name] = (certain, certain + rest * row.weight // max(1, weights))

    def of(self, user: str) -> str:
        """The user group whose part a user's tasks count for; empty: none's."""
        return self._of.get(user, "")

    def hold(self, user: str, units: int) -> None:
        """Count units that the user has, or releases (negative)."""
        self._held[self.of(user)] += units

    def keep(self, user: str, units: int) -> None:
        """The same for units that stay until somebody takes them."""
        self._kept[self.of(user)] += units

    def exceeded(self, waiting: Waiting) -> ShareRow | None:
        """The row whose limit would be broken, were the task started now."""
        row = self._rows.get(waiting.share)
        if row is None or row.limit is None:
            return None
        return row if self._held[row.name] + waiting.need.units > row.limit * UNIT else None

    def held(self, name: str) -> int:
        """Units on nodes, of a user group."""
        return self._held[name]

    def tier(self, waiting: Waiting) -> Tier:
        """Where a task would stand, were it started now; who has waited for too long stands first."""
        if waiting.lifted:
            return Tier.GUARANTEED
        certain, part = self._bounds[waiting.share]
        after = self._kept[waiting.share] + waiting.need.units
        return (
            Tier.GUARANTEED if after <= certain else Tier.WEIGHTED if after <= part else Tier.BEYOND
        )

    def tier_of(self, holder: Holder) -> Tier:
        """Where a run stands: what its user group would lack without it."""
        name = self.of(holder.task.user)
        certain, part = self._bounds[name]
        after = self._kept[name] - holder.units
        return (
            Tier.BEYOND if after >= part else Tier.WEIGHTED if after >= certain else Tier.GUARANTEED
        )

    @contextmanager
    def trying(self) -> Iterator[Callable[[Holder], None]]:
        """See what holds when runs leave, one after the other; all is as before at the end."""
        left: list[Holder] = []

        def leave(holder: Holder) -> None:
            left.append(holder)
            self.keep(holder.task.user, -holder.units)

        yield leave
        for holder in left:
            self.keep(holder.task.user, holder.units)

    @contextmanager
    def back(self, left: Iterable[Holder]) -> Iterator[None]:
        """See what held before these had left."""
        for holder in left:
            self.keep(holder.task.user, holder.units)
        yield
        for holder in left:
            self.keep(holder.task.user, -holder.units)

    def apart(self, waiting: Waiting, holder: Holder) -> bool:
        """They are of different user groups, as far as parts are concerned."""
        return bool(self._rows) and waiting.share != self.of(holder.task.user)
