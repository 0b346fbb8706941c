"""Runs full garbage collections while the user does not type.

A full collection takes as long as several frames. Python would run it during a key press.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

IDLE_SECONDS = 2.0
"""The user counts as idle this long after the last input."""
# Python collects the youngest generation after 5 000 new objects, and the middle one after 10 of these
_YOUNG, _MIDDLE = 5_000, 10
_NEVER = 1 << 30
_IDLE_ROUNDS, _BUSY_ROUNDS = 2, 20  # middle collections until a full one is due


def postpone_full_collections() -> None:
    """Let Python collect only young objects in this process. The caller must use an `IdleCollector`."""
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)


class IdleCollector:
    """Collects garbage when the user is idle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_input = clock()

    def on_input(self) -> None:
        """Record an input of the user."""
        self._last_input = self._clock()

    def collect_if_due(self) -> bool:
        """Run a full collection if it is due. Return True if it ran. Must be called regularly."""
        idle = self._clock() - self._last_input >= IDLE_SECONDS
        due = gc.get_count()[2] >= (_IDLE_ROUNDS if idle else _BUSY_ROUNDS)
        if due:
            gc.collect()
        return due
