"""Combines many small changes into few repaints: the first at once, the others together."""

from __future__ import annotations

from collections.abc import Callable


class Debouncer:
    """Hands ids over at most once in so many seconds; none is lost."""

    def __init__(
        self,
        callback: Callable[[set[int]], None],
        seconds: float,
        schedule: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._callback, self._seconds, self._schedule = callback, seconds, schedule
        self._ids: set[int] = set()
        self._waiting = False
        self._due = False

    def add(self, ids: set[int]) -> None:
        """Take ids; an empty set only rings."""
        self._ids |= ids
        self._due = True
        if not self._waiting:
            self._deliver()

    def _deliver(self) -> None:
        ids, self._ids, self._due = self._ids, set(), False
        self._waiting = True
        self._schedule(self._seconds, self._on_interval_end)
        self._callback(ids)

    def _on_interval_end(self) -> None:
        self._waiting = False
        if self._due:
            self._deliver()
