"""How a node group is shared among user groups: guaranteed nodes, then parts by weight, then whatever others leave.

No share is idle: a user group may use more than its share while others leave it, and returns it when they need it.
Shares matter only among tasks of one level; quota limits levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.queue.queue import Waiting


class Tier(IntEnum):
    """Which share a task takes its nodes from: a lower tier comes first within a level, and may take from higher
    ones.
    """

    GUARANTEED = 0
    WEIGHTED = 1
    BEYOND = 2


class Shares:
    """The shares of one node group. Nodes of a run count against a limit until they are free, and against the share
    until the run is asked to leave.
    """

    def __init__(self, rows: Iterable[ShareRow] = ()) -> None:
        self._rows = {row.name: row for row in rows}
        self._of = {user: row.name for row in self._rows.values() for user in row.users}
        self._used = dict.fromkeys([*self._rows, ""], 0)
        self._retained = dict.fromkeys([*self._rows, ""], 0)
        self._bounds: dict[str, tuple[int, int]] = {"": (0, 0)}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def divide(self, capacity: int) -> None:
        """Compute the size of each share; `capacity`: usable nodes, in units."""
        rows = self._rows.values()
        remaining = max(0, capacity - sum(row.guaranteed for row in rows) * UNIT)
        weights = sum(row.weight for row in rows)
        for row in rows:
            guaranteed = row.guaranteed * UNIT
            self._bounds[row.name] = (
                guaranteed,
                guaranteed + remaining * row.weight // max(1, weights),
            )

    def of(self, user: str) -> str:
        """The user group whose share a user's tasks count for; empty: none."""
        return self._of.get(user, "")

    def add_used(self, user: str, units: int) -> None:
        """Count units that are on nodes; negative: that are free again."""
        self._used[self.of(user)] += units

    def add_retained(self, user: str, units: int) -> None:
        """Count units of runs that were not asked to leave; negative: that were."""
        self._retained[self.of(user)] += units

    def exceeded(self, waiting: Waiting) -> ShareRow | None:
        """The row whose limit the start of the task would exceed."""
        row = self._rows.get(waiting.share)
        if row is None or row.limit is None:
            return None
        return row if self._used[row.name] + waiting.request.units > row.limit * UNIT else None

    def used(self, name: str) -> int:
        """Units of a user group on nodes."""
        return self._used[name]

    def tier(self, waiting: Waiting) -> Tier:
        """The tier of a task if it starts now; a lifted task has the first."""
        if waiting.lifted:
            return Tier.GUARANTEED
        guaranteed, part = self._bounds[waiting.share]
        after = self._retained[waiting.share] + waiting.request.units
        return (
            Tier.GUARANTEED
            if after <= guaranteed
            else Tier.WEIGHTED
            if after <= part
            else Tier.BEYOND
        )

    def tier_of(self, allocation: Allocation) -> Tier:
        """The tier of a run, by what its user group retains without it."""
        name = self.of(allocation.task.user)
        guaranteed, part = self._bounds[name]
        after = self._retained[name] - allocation.units
        return (
            Tier.BEYOND
            if after >= part
            else Tier.WEIGHTED
            if after >= guaranteed
            else Tier.GUARANTEED
        )

    @contextmanager
    def trial(self) -> Iterator[Callable[[Allocation], None]]:
        """Try releases of runs, one after the other; all are undone at the end."""
        released: list[Allocation] = []

        def release(allocation: Allocation) -> None:
            released.append(allocation)
            self.add_retained(allocation.task.user, -allocation.units)

        yield release
        for allocation in released:
            self.add_retained(allocation.task.user, allocation.units)

    @contextmanager
    def restored(self, released: Iterable[Allocation]) -> Iterator[None]:
        """Undo releases while the block runs."""
        for allocation in released:
            self.add_retained(allocation.task.user, allocation.units)
        yield
        for allocation in released:
            self.add_retained(allocation.task.user, -allocation.units)

    def different_groups(self, waiting: Waiting, allocation: Allocation) -> bool:
        """They belong to different user groups with shares."""
        return bool(self._rows) and waiting.share != self.of(allocation.task.user)
