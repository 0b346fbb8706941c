"""All durations of the fence (when an agent has certainly ended), derived from two settings.

`docs/contributing/fencing.md` proves that these inequalities are enough; `tests/backend/domain/test_timing.py`
checks them. All durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

CLOCK_DRIFT = 0.001
"""Two steady clocks differ by at most this part of the time that passes (NTP slews by at most half of it)."""

LEADER_SECONDS = 3.0
"""A server that leads no more stops to renew leases within this time (`server.leadership.decide.SILENT_SECONDS`)."""

PAUSE_SECONDS = 5.0
"""A supervisor that is due to run runs within this time, unless the whole machine stands still."""

KILL_SECONDS = 10.0
"""Processes that got SIGKILL are gone within this time, unless the kernel holds them."""

FENCE_SECONDS = 600.0
"""`fence_after` of pods, unless an operator sets another one."""

FORCED_DELETE_SECONDS = 60.0
"""A pod that was deleted by force is ended within this time where its kubelet runs. Where it does not, Kubernetes has
called the node not ready by then (node-monitor-grace-period: 50 s), and the fence counts."""

KUBELET_SETTLE_SECONDS = 15.0
"""A kubelet that is back has ended within this time what it should have ended before."""

FULL_MARGIN_FROM = 100.0
"""A shorter fence is too short for all of these: its margin is scaled down, and the proof holds for shorter pauses."""

_LARGEST_MARGIN = 0.2  # of the fence
_HEARTBEATS_IN_A_LEASE = 8


@dataclass(frozen=True, slots=True)
class Timing:
    """What an operator sets. `fence_after` 0: leases never expire, because nothing is concluded from time alone."""

    heartbeat: float = 5.0  # between two heartbeats of an agent, where the fence leaves time for it
    fence_after: float = (
        0.0  # since the last renewal of a rank's lease: nothing of the rank runs any more
    )

    @property
    def interval(self) -> float:
        """Between two heartbeats: several can be lost before a lease expires."""
        return min(self.heartbeat, self.lease / _HEARTBEATS_IN_A_LEASE)

    @property
    def silent_after(self) -> float:
        """An agent without contact for so long is shown as silent."""
        return 2 * self.interval

    @property
    def stream_patience(self) -> float:
        """A stream that received nothing for so long counts as dead, and is opened again."""
        return 4 * self.interval

    @property
    def margin(self) -> float:
        """The lease ends so long before `fence_after`: for a deposed leader, a late supervisor, SIGKILL, and drift."""
        needed = LEADER_SECONDS + PAUSE_SECONDS + KILL_SECONDS + CLOCK_DRIFT * self.fence_after
        return min(needed, _LARGEST_MARGIN * self.fence_after)

    @property
    def lease(self) -> float:
        """How long a rank may run on after it sent the heartbeat that was answered last."""
        return self.fence_after - self.margin if self.fence_after else inf

    @property
    def end_before(self) -> float:
        """The agent begins to end its program (SIGTERM) so long before the lease expires."""
        return min(5.0, 0.1 * self.lease) if self.fence_after else 0.0
