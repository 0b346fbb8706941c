"""All durations of fencing, which decides when an agent has certainly ended. They follow from two settings.

`docs/contributing/fencing.md` proves that these inequalities are enough; `tests/backend/domain/test_timing.py`
checks them. All durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

CLOCK_DRIFT = 0.001
"""Two monotonic clocks differ by at most this fraction of the elapsed time (NTP slews by at most half of it)."""

LEADER_SECONDS = 3.0
"""A server that no longer leads stops renewing leases within this time (`server.election.next_action`)."""

PAUSE_SECONDS = 5.0
"""A supervisor process runs within this time after it is due, unless the whole machine is stopped."""

KILL_SECONDS = 10.0
"""Processes are gone within this time after SIGKILL, unless they are blocked in the kernel."""

FENCE_SECONDS = 600.0
"""The default of `fence_after` for pods."""

FORCED_DELETE_SECONDS = 60.0
"""A running kubelet ends a pod within this time after the pod was deleted by force.

If the kubelet does not run, Kubernetes reports the node as not ready by then (node-monitor-grace-period: 50 s), and
`fence_after` applies."""

KUBELET_SETTLE_SECONDS = 15.0
"""A kubelet that has restarted ends within this time what it should have ended before."""

FULL_MARGIN_FROM = 100.0
"""A shorter `fence_after` gets a smaller margin, and the proof then holds only for shorter pauses."""

_LARGEST_MARGIN = 0.2  # of the fence
_HEARTBEATS_IN_A_LEASE = 8


@dataclass(frozen=True, slots=True)
class Timing:
    """The settings of an operator, and the durations that follow. If `fence_after` is 0, leases never expire."""

    heartbeat: float = 5.0  # between two heartbeats of an agent, or less if `fence_after` is short
    fence_after: float = (
        0.0  # so long after the last renewal of its lease, nothing of a rank runs any more
    )

    @property
    def interval(self) -> float:
        """The time between two heartbeats. Several heartbeats can be lost before a lease expires."""
        return min(self.heartbeat, self.lease / _HEARTBEATS_IN_A_LEASE)

    @property
    def silent_after(self) -> float:
        """An agent that has sent nothing for so long is shown as silent."""
        return 2 * self.interval

    @property
    def stream_patience(self) -> float:
        """A stream that has received nothing for so long is opened again."""
        return 4 * self.interval

    @property
    def margin(self) -> float:
        """How long before `fence_after` the lease ends.

        This leaves time for a former leader, a late supervisor, SIGKILL and clock drift.
        """
        needed = LEADER_SECONDS + PAUSE_SECONDS + KILL_SECONDS + CLOCK_DRIFT * self.fence_after
        return min(needed, _LARGEST_MARGIN * self.fence_after)

    @property
    def lease(self) -> float:
        """How long a rank may continue after it sent the last heartbeat that was answered."""
        return self.fence_after - self.margin if self.fence_after else inf

    @property
    def end_before(self) -> float:
        """How long before the end of the lease the agent sends SIGTERM to its program."""
        return min(5.0, 0.1 * self.lease) if self.fence_after else 0.0
