"""How many ranks of a newcomer would fit, as victims are added and taken back."""

from __future__ import annotations

from hai_backend.scheduler.capacity.fit import slots
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.slots import Grip, Holder, Need, Slot


class RankCount:
    """How many ranks of the newcomer would fit, as victims are added and taken back."""

    def __init__(self, pool: Pool, need: Need, total: int) -> None:
        self._need = need
        self._suiting = frozenset(pool.spots_for(need)) if need.only else None
        self._kinds = pool.kinds_for(need)
        self._shared = pool.shared
        self._gone: dict[Holder, None] = {}
        self._slots: dict[Slot, int] = {}
        self.total = total

    @property
    def missing(self) -> int:
        return self._need.count - self.total

    def gain(self, victim: Holder) -> int:
        """How many more ranks would fit without this one."""
        if not self._shared:
            return sum(map(self._suits, victim.spots))
        self.add(victim)
        total = self.total
        self.spare(victim)
        return total - self.total

    def add(self, victim: Holder) -> None:
        self._gone[victim] = None
        self._recount(victim)

    def spare(self, victim: Holder) -> None:
        del self._gone[victim]
        self._recount(victim)

    def useful(self, victim: Holder) -> bool:
        return any(map(self._suits, victim.spots))

    def on_named(self) -> set[Holder]:
        """Who is on the nodes that the newcomer names."""
        return {holder for spot in self._suiting or () for holder in spot.holders}

    def _suits(self, spot: Slot) -> bool:
        return spot.kind in self._kinds if self._suiting is None else spot in self._suiting

    def _recount(self, victim: Holder) -> None:
        for spot in dict.fromkeys(victim.spots):
            if self._suits(spot):
                before = self._slots.get(spot)
                if before is None:
                    before = slots(spot, self._need, Grip.LEAVING)
                self._slots[spot] = slots(spot, self._need, Grip.LEAVING, self._gone)
                self.total += self._slots[spot] - before
