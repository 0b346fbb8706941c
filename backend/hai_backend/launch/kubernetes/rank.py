"""What is known of one rank, and when time alone changes something for it. Pure: time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hai_backend.launch.base import LaunchFailed, RankGone, RankKey
from hai_backend.launch.kubernetes.causes import Cause, Fault
from hai_backend.launch.kubernetes.nodes import Nodes, Patience
from hai_backend.launch.kubernetes.pods import PodSeen

_FORCE_AGAIN = 10.0


@dataclass(slots=True)
class Rank:
    """One of a run. `uid` is that of its newest pod; empty: nobody has seen one."""

    key: RankKey
    node: str
    uid: str = ""
    # when it was first to be ended: its lease is not renewed from then on
    killed_at: float = math.inf
    fence_after: float = 0.0  # as its agent knows it; the setting may have become shorter since
    exited: bool = False  # its agent has said that nothing of its program runs any more
    leaving: bool = False
    failure: LaunchFailed | None = None
    trouble: Cause | None = None
    troubled_at: float = 0.0
    placed: bool = False  # the node has made room for it: warnings from before are settled
    ran: bool = False
    over_at: float | None = None  # nothing of it is to be seen
    vanished: bool = False  # and no kubelet said that it has ended: somebody deleted it by force
    why: str = ""
    forced_at: float = -math.inf

    @property
    def killed(self) -> bool:
        """Whether it is to end."""
        return self.killed_at < math.inf

    @property
    def refused(self) -> bool:
        """Whether its node did not take it."""
        return self.failure is not None and self.failure.unschedulable

    def kill(self, now: float) -> None:
        """It is to end."""
        self.killed_at = min(self.killed_at, now)

    def take(self, pod: PodSeen, now: float) -> bool:
        """Its pod as it is now; answers whether somebody else has begun to take it away."""
        if self.uid != pod.uid:
            self.uid, self.node = pod.uid, pod.node or self.node
            self.over_at, self.vanished = None, False
        self.fence_after = max(self.fence_after, pod.fence_after)
        taken = pod.leaving and not (self.leaving or self.killed or pod.over)
        self.leaving, self.ran = self.leaving or pod.leaving, self.ran or pod.started
        self._judge(pod, now)
        if pod.over:
            self.vanished = False
            self.over(now)
        return taken

    def over(self, now: float) -> None:
        """Nothing of it is to be seen any more."""
        self.over_at = now if self.over_at is None else self.over_at

    def vanish(self, now: float) -> None:
        """The last word of a kubelet comes before the object goes; where it is dead, we ended the pod by force.

        What nobody had asked to go may have run although we have not heard of it yet.
        """
        if self.over_at is None:
            self.vanished = (self.ran or not self.killed) and self.forced_at == -math.inf
        self.over(now)

    def warned(self, cause: Cause, now: float) -> None:
        """The cluster warns about its pod."""
        if not (self.placed or self.trouble or self.over_at):
            self.trouble, self.troubled_at = cause, now

    def end(self) -> LaunchFailed | RankGone:
        """What is to be said when nothing of it exists any more."""
        return self.failure or RankGone(self.key, self.why)

    def waits(self, nodes: Nodes) -> bool:
        """Whether time alone may change something for it."""
        ending = (self.killed or self.leaving) and nodes.away(self.node)
        return self.over_at is not None or self.trouble is not None or ending

    def due(self, nodes: Nodes, patience: Patience) -> float:
        """When it does: the end is believed, the trouble lasts, a dead node is not waited for."""
        if self.over_at is not None:
            return self._gone_at(self.over_at, nodes, patience)
        if self.trouble is not None:
            return self.troubled_at + patience.trouble
        force_again = self.forced_at + _FORCE_AGAIN
        return force_again if self.exited else max(self._trusted_at(nodes), force_again)

    def _gone_at(self, over_at: float, nodes: Nodes, patience: Patience) -> float:
        if self.exited:
            return over_at
        doubted = self.vanished and self.node in nodes
        known_at = over_at + (patience.vanished if doubted else 0.0)
        return max(known_at, self._trusted_at(nodes, over_at))

    def _trusted_at(self, nodes: Nodes, since: float = -math.inf) -> float:
        """A rank that may have run renews its lease until it is to end, perhaps long after its node was lost."""
        never_ran = self.killed and not self.ran
        renewed_until = -math.inf if never_ran else self.killed_at
        return nodes.trusted_at(self.node, since, renewed_until, self.fence_after)

    def _judge(self, pod: PodSeen, now: float) -> None:
        """What its cause means for the rank."""
        cause = pod.cause
        self.placed = self.placed or pod.placed
        if self.placed and (cause is None or cause.fault is not Fault.LATER):
            self.trouble = None
        if pod.started or self.leaving or self.killed:
            self.trouble = None
            self.why = cause.words if cause is not None else self.why
        elif cause is not None and cause.fault in (Fault.TASK, Fault.ROOM, Fault.HERE):
            unschedulable = cause.fault is Fault.ROOM
            self.failure = self.failure or LaunchFailed(self.key, cause.words, unschedulable)
        elif cause is not None and cause.fault is Fault.LATER and self.trouble is None:
            self.trouble, self.troubled_at = cause, now
        elif cause is not None:
            self.why = cause.words
