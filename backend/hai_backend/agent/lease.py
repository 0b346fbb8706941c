"""The lease of a rank: the deadline until which its processes may run. The agent and the supervisor share its memory.

Only an answered heartbeat extends the lease. The extension counts from the time when the agent *sent* that heartbeat,
which is before a server answered it. So when `fence_after` seconds have passed since the last answer of a server, no
process of the rank runs (docs/contributing/fencing.md).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from math import inf


class Expired(Exception):
    """The lease has expired: another agent may run this rank by now."""


def boot_seconds() -> float:
    """Return the time of the clock of leases. It cannot be set, and it continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A lease that expires `seconds` after its creation; inf means never.

    It must be created before the fork, so that both processes share it.
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
        """Extend the lease, because a server has answered the heartbeat that was sent at `sent_at`.

        Raises Expired if the lease has expired.
        """
        if self.expired:
            raise Expired(
                f"the lease had expired {-self.remaining:.1f} s before a server renewed it"
            )
        self._cell[0] = max(self.deadline, sent_at + self._seconds)

    def release(self) -> None:
        """Let the lease never expire, because no process of the rank runs and none will be started."""
        self._cell[0] = inf
