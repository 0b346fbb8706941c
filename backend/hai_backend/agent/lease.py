"""The lease of a rank: until when its processes may run, in memory that the agent and its supervisor share.

Only an answered heartbeat extends the lease, counted from when the agent *sent* that heartbeat, which is never
later than when a server answered it. So once `fence_after` has passed since a server last answered, nothing of the
rank runs (docs/contributing/fencing.md).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from math import inf


class Expired(Exception):
    """The lease has expired: another agent may have this rank by now."""


def boot_seconds() -> float:
    """The clock of leases: it cannot be set, and it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Begins when it is created. `seconds` inf: it never expires. Create it before the fork, to share it."""

    def __init__(self, seconds: float, clock: Callable[[], float] = boot_seconds) -> None:
        self._seconds = seconds
        self._clock = clock
        # One aligned word, so that the other process reads the old deadline or the new one.
        self._cell = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._cell[0] = clock() + seconds

    @property
    def deadline(self) -> float:
        """In `boot_seconds`."""
        return self._cell[0]

    @property
    def remaining(self) -> float:
        """Seconds until it expires."""
        return self.deadline - self._clock()

    @property
    def expired(self) -> bool:
        return self.remaining <= 0

    def now(self) -> float:
        """By the clock of this lease."""
        return self._clock()

    def renew(self, sent_at: float) -> None:
        """A server has answered the heartbeat that was sent then. Raises Expired: an expired lease stays expired."""
        if self.expired:
            raise Expired(
                f"the lease had expired {-self.remaining:.1f} s before a server renewed it"
            )
        self._cell[0] = max(self.deadline, sent_at + self._seconds)

    def release(self) -> None:
        """No process of the rank runs, and none will: the lease is not needed any more."""
        self._cell[0] = inf
