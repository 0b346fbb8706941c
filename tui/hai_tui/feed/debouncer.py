"""Many small changes become few repaints: the first at once, the rest together."""

from __future__ import annotations

from collections.abc import Callable


class Debouncer:
    """Hands ids over at most once in so many seconds; none is lost."""

    def __init__(
        self,
        give: Callable[[set[int]], None],
        seconds: float,
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._give, self._seconds, self._after = give, seconds, after
        self._ids: set[int] = set()
        self._resting = False
        self._due = False

    def add(self, ids: set[int]) -> None:
        """Take ids; an empty set only rings."""
        self._ids |= ids
        self._due = True
        if not self._resting:
            self._hand_over()

    def _hand_over(self) -> None:
        ids, self._ids, self._due = self._ids, set(), False
        self._resting = True
        self._after(self._seconds, self._rested)
        self._give(ids)

    def _rested(self) -> None:
        self._resting = False
        if self._due:
            self._hand_over()
