"""Detects a program that has printed nothing for too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Watchdog:
    """Calls `fire`, with the seconds of silence, after `seconds` without output; 0 means never.

    `last_output_at` returns when the program printed last, by the monotonic clock.
    """

    def __init__(
        self, seconds: float, last_output_at: Callable[[], float], fire: Callable[[float], None]
    ) -> None:
        self._seconds = seconds
        self._last_output_at = last_output_at
        self._fire = fire
        self._watching = False
        self._timer: asyncio.TimerHandle | None = None

    def set_limit(self, seconds: float) -> None:
        """Change the limit, in seconds."""
        self._seconds = seconds
        if self._watching:
            self.start()

    def start(self) -> None:
        """Start to watch, or apply a new limit."""
        self.stop()
        self._watching = True
        if self._seconds > 0:
            delay = self._last_output_at() + self._seconds - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(delay, 0.0), self._check)

    def stop(self) -> None:
        """Stop watching."""
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
