"""Fires when the program has printed nothing for too long. Sleeps exactly until that could be the case."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Watchdog:
    """`heard_at` says when the program last printed; 0 seconds: never fires."""

    def __init__(
        self, seconds: float, last_output_at: Callable[[], float], fire: Callable[[float], None]
    ) -> None:
        self._seconds = seconds
        self._last_output_at = last_output_at
        self._fire = fire
        self._watching = False
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, seconds: float) -> None:
        """Another limit, from now on."""
        self._seconds = seconds
        if self._watching:
            self.start()

    def start(self) -> None:
        """Watch (again)."""
        self.stop()
        self._watching = True
        if self._seconds > 0:
            delay = self._last_output_at() + self._seconds - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(delay, 0.0), self._check)

    def stop(self) -> None:
        """Watch no more."""
        self._watching = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        silent = time.monotonic() - self._last_output_at()
        if silent >= self._seconds:
            self._timer = None
            self._fire(silent)
        else:
            self.start()
