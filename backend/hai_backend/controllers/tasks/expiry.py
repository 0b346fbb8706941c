"""Who stays by a token or a right is looked at when one of those expires: nothing else would wake what is quiet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from hai_backend.controllers.aio.clock import Clock

_LONGEST = 24 * 3600.0  # timers of years overflow, and clocks are set


class Expiry:
    """One timer, for the next moment at which something expires; `check` then sends away who may not stay."""

    def __init__(
        self, clock: Clock, next_expiry: Callable[[float], float], check: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._next_expiry = next_expiry
        self._check = check
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Now, and when the next one expires."""
        self._check()
        self._wait(self._next_expiry(self._clock.now()))

    def hear(self, moment: float | None) -> None:
        """There is something new that expires then; None: never."""
        if moment is not None and moment < self._next:
            self._wait(moment)

    def _wait(self, moment: float) -> None:
        self.close()
        self._next = moment
        later = moment - self._clock.now() + 0.001  # what has expired, has expired
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(later, _LONGEST), self.look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
