"""How a node group is divided among user groups: guaranteed nodes, parts by weight, and nodes that others do not use.

A user group may use more than its share while the others use less than theirs, and gives the difference back when they
need it. Shares decide only among tasks of one level; quota limits the use of each level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.scheduler.capacity.node_info import Allocation
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.queue.queue import QueueEntry


class Tier(IntEnum):
    """From which part of the node group a task gets its nodes.

    Within a level, a task of a lower tier comes first, and may suspend runs of higher tiers.
    """

    GUARANTEED = 0
    WEIGHTED = 1
    BEYOND = 2  # nodes that the shares of others leave


class Shares:
    """The shares of one node group.

    The nodes of a run count as used, against the limit, until they are free. They count as retained, against the share,
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
        """Compute the size of each share; `capacity` is the usable nodes in units of quota."""
        rows = self._rows.values()
        remaining = max(0, capacity - sum(row.guaranteed for row in rows) * UNIT)
        weights = sum(row.weight for row in rows)
        for row in rows:
            guaranteed = row.guaranteed * UNIT
            self._bounds[row.name] = (
                guaranteed,
                guaranteed + remaining * row.weight // max(1, weights),
            )

    def share_of(self, user: str) -> str:
        """Return the user group whose share the user's tasks count for, or an empty text."""
        return self._of.get(user, "")

    def add_used(self, user: str, units: int) -> None:
        """Add units, which may be negative, to what the user group has on nodes."""
        self._used[self.share_of(user)] += units

    def add_retained(self, user: str, units: int) -> None:
        """Add units, which may be negative, to what the user group has in runs that were not asked to leave."""
        self._retained[self.share_of(user)] += units

    def exceeded(self, entry: QueueEntry) -> ShareRow | None:
        """Return the row whose limit a start of the task would exceed, or None."""
        row = self._rows.get(entry.share)
        if row is None or row.limit is None:
            return None
        return row if self._used[row.name] + entry.request.units > row.limit * UNIT else None

    def used(self, name: str) -> int:
        """Return the units that a user group has on nodes."""
        return self._used[name]

    def tier(self, entry: QueueEntry) -> Tier:
        """Return the tier of a task if it starts now. A lifted task has the first tier."""
        if entry.lifted:
            return Tier.GUARANTEED
        guaranteed, part = self._bounds[entry.share]
        after = self._retained[entry.share] + entry.request.units
        return (
            Tier.GUARANTEED
            if after <= guaranteed
            else Tier.WEIGHTED
            if after <= part
            else Tier.BEYOND
        )

    def tier_of(self, allocation: Allocation) -> Tier:
        """Return the tier of a run, by what its user group retains without the run."""
        name = self.share_of(allocation.task.user)
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
        """Yield a function that counts a run as released. All releases are undone at the end of the block."""
        released: list[Allocation] = []

        def release(allocation: Allocation) -> None:
            released.append(allocation)
            self.add_retained(allocation.task.user, -allocation.units)

        yield release
        for allocation in released:
            self.add_retained(allocation.task.user, allocation.units)

    @contextmanager
    def without_releases(self, released: Iterable[Allocation]) -> Iterator[None]:
        """Undo releases within the block."""
        for allocation in released:
            self.add_retained(allocation.task.user, allocation.units)
        yield
        for allocation in released:
            self.add_retained(allocation.task.user, -allocation.units)

    def different_groups(self, entry: QueueEntry, allocation: Allocation) -> bool:
        """Return whether the group has shares, and the task and the run count for different ones."""
        return bool(self._rows) and entry.share != self.share_of(allocation.task.user)
