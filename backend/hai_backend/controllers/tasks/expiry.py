"""Ends streams when the token or right of their caller expires, because an idle stream does not check it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from hai_backend.controllers.aio.clock import Clock

# The longest timer in seconds, because timers of years overflow, and the clock may be changed.
_LONGEST = 24 * 3600.0


class Expiry:
    """A timer for the next expiry. It calls `check`, which ends the streams of callers without access."""

    def __init__(
        self, clock: Clock, next_expiry: Callable[[float], float], check: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._next_expiry = next_expiry
        self._check = check
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def check_now(self) -> None:
        """Check now, and again at the next expiry."""
        self._check()
        self._schedule(self._next_expiry(self._clock.now()))

    def expires_at(self, at: float | None) -> None:
        """Record that a new token or right expires at this time, or never if it is None."""
        if at is not None and at < self._next:
            self._schedule(at)

    def _schedule(self, at: float) -> None:
        self.close()
        self._next = at
        later = at - self._clock.now() + 0.001  # just after the expiry
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(later, _LONGEST), self.check_now)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
