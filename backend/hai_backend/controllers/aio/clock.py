"""The system clock, and the protocol that clocks of tests implement."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the Unix epoch."""


class SystemClock:
    def now(self) -> float:
        return time.time()
