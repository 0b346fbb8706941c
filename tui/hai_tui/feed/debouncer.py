"""Combines many changes into few repaints: the first is painted at once, the following ones together."""

from __future__ import annotations

from collections.abc import Callable


class Debouncer:
    """Passes ids to a callback, at most once per interval. No id is lost."""

    def __init__(
        self,
        callback: Callable[[set[int]], None],
        seconds: float,
        schedule: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._callback, self._seconds, self._schedule = callback, seconds, schedule
        self._ids: set[int] = set()
        self._interval_runs = False
        self._is_due = False

    def add(self, ids: set[int]) -> None:
        """Add ids; an empty set calls the callback, too."""
        self._ids |= ids
        self._is_due = True
        if not self._interval_runs:
            self._deliver()

    def _deliver(self) -> None:
        ids, self._ids, self._is_due = self._ids, set(), False
        self._interval_runs = True
        self._schedule(self._seconds, self._on_interval_end)
        self._callback(ids)

    def _on_interval_end(self) -> None:
        self._interval_runs = False
        if self._is_due:
            self._deliver()
