"""The lease of a rank: the deadline until which its processes may run, in memory that agent and supervisor share.

Only an answered heartbeat extends the lease. The extension counts from when the agent *sent* that heartbeat, which is
never later than when a server answered it. So once `fence_after` has passed since a server last answered, no process
of the rank runs (docs/contributing/fencing.md).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from math import inf


class Expired(Exception):
    """The lease has expired: another agent may run this rank by now."""


def boot_seconds() -> float:
    """Return the time of the clock of leases, which nobody can set and which counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A lease of `seconds` from its creation; inf means that it never expires.

    Create it before the fork, to share it.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = boot_seconds) -> None:
        self._seconds = seconds
        self._clock = clock
        # One aligned word, so that the other process reads either the old deadline or the new one.
        self._cell = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._cell[0] = clock() + seconds

    @property
    def deadline(self) -> float:
        """The deadline by `boot_seconds`."""
        return self._cell[0]

    @property
    def remaining(self) -> float:
        """Seconds until the lease expires."""
        return self.deadline - self._clock()

    @property
    def expired(self) -> bool:
        return self.remaining <= 0

    def now(self) -> float:
        """Return the time by the clock of this lease."""
        return self._clock()

    def renew(self, sent_at: float) -> None:
        """Extend the lease: a server has answered the heartbeat sent at `sent_at`.

        Raises Expired if the lease has expired.
        """
        if self.expired:
            raise Expired(
                f"the lease had expired {-self.remaining:.1f} s before a server renewed it"
            )
        self._cell[0] = max(self.deadline, sent_at + self._seconds)

    def release(self) -> None:
        """Give up the lease, because no process of the rank runs and none will."""
        self._cell[0] = inf
