"""Runs full garbage collections while the user does not type.

A full collection takes as long as several frames, and Python would run it during a key press.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

IDLE_SECONDS = 2.0
"""So long after a key the next one is not waited for."""
_YOUNG, _MIDDLE = 5_000, 10  # new objects, and rounds of these, after which Python looks by itself
_NEVER = 1 << 30
_IDLE_ROUNDS, _BUSY_ROUNDS = 2, 20  # such rounds since everything was looked through


def postpone_full_collections() -> None:
    """From now on this process looks only through new objects by itself. Who calls it must use a `IdleCollector`."""
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)


class IdleCollector:
    """Knows when somebody typed last, and collects when that is a while ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_input = clock()

    def on_input(self) -> None:
        """Somebody is at the keyboard or the mouse."""
        self._last_input = self._clock()

    def collect_if_due(self) -> bool:
        """To be called every now and then; True when everything was looked through."""
        idle = self._clock() - self._last_input >= IDLE_SECONDS
        due = gc.get_count()[2] >= (_IDLE_ROUNDS if idle else _BUSY_ROUNDS)
        if due:
            gc.collect()
        return due
