"""The state of nodes over time: since when a node is not ready, and when it counts as lost. Pure.

The pods of a lost node stay in the API server, and the object of a pod may be deleted while its containers still run.
So the state of the pods of an unready node is trusted only `fence_after` seconds after two events: the node counted as
lost, and the rank could renew its lease for the last time. By then, every agent whose lease was not renewed has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.timing import (
    FENCE_SECONDS,
    FORCED_DELETE_SECONDS,
    KUBELET_SETTLE_SECONDS,
)
from hai_backend.kube_cache.nodes import ObservedNode
from hai_backend.launch.kubernetes.foreign_pods import ForeignUsage, NodeReserve


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds. If `fence_after` is 0, agents never end by themselves, so no timeout proves their end."""

    lost_after: float = 30.0  # a node that is unready for longer counts as lost
    fence_after: float = FENCE_SECONDS  # so long after the node was lost, no agent runs there
    # a recovered node needs so long to terminate deleted pods
    settle: float = KUBELET_SETTLE_SECONDS
    # a pod that was deleted by force may run for so long
    forced_delete: float = FORCED_DELETE_SECONDS
    # a node that refused a pod gets no work for so long; the time doubles with each refusal …
    suspect_pause: float = 60.0
    suspect_pause_max: float = 900.0  # … up to this limit
    # the part of a whole node for other pods
    reserve: NodeReserve = field(default_factory=NodeReserve)
    transient_failure: float = 30.0  # a transient failure that lasts so long is final


@dataclass(slots=True)
class _NodeRecord:
    observed: ObservedNode
    ready_since: float
    unready_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The latest refusal of a pod by a node. It is the last of `count` consecutive refusals."""

    pod: str  # its uid
    why: str
    until: float
    count: int


class Nodes:
    """The states of all nodes. Times are those of one monotonic clock."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._records: dict[str, _NodeRecord] = {}
        self._silent_since: dict[str, float] = {}
        self._refusals: dict[str, _Refusal] = {}
        self.foreign = ForeignUsage(timeouts.reserve)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def uid(self, name: str) -> str:
        """Return the uid of the object of a node; empty if there is none."""
        return self._records[name].observed.uid if name in self._records else ""

    def observe(self, name: str, observed: ObservedNode | None, now: float) -> bool:
        """Record the current state of a node; None means that it was removed.

        Return whether it was added or removed, or whether its readiness changed.
        """
        record = self._records.get(name)
        if observed is not None and observed.unready:
            self._silent_since.setdefault(name, now)
        else:
            self._silent_since.pop(name, None)
        if observed is None:
            self._refusals.pop(name, None)
            return self._records.pop(name, None) is not None
        if record is None:
            self._records[name] = _NodeRecord(observed, now, now if observed.unready else None)
            return True
        record.observed = observed
        if bool(observed.unready) == (record.unready_since is not None):
            return False
        record.unready_since = now if observed.unready else None
        record.ready_since = record.ready_since if observed.unready else now
        return True

    def pod_refused(self, name: str, pod: str, why: str, now: float) -> None:
        """Record that a node refused a pod. Something unknown uses its resources, so it gets no work for a while."""
        before = self._refusals.get(name)
        if before is not None and before.pod == pod:
            return  # already recorded
        count = before.count + 1 if before is not None else 1
        timeouts = self._timeouts
        pause = min(timeouts.suspect_pause_max, timeouts.suspect_pause * 2.0 ** min(count - 1, 16))
        self._refusals[name] = _Refusal(pod, why, now + pause, count)

    def pod_accepted(self, name: str) -> None:
        """Record that a pod has started on the node."""
        self._refusals.pop(name, None)

    def is_untrusted(self, name: str) -> bool:
        """Return whether the reported state of the node's pods may be outdated."""
        return name in self._silent_since or (name != "" and name not in self._records)

    def trusted_at(
        self,
        name: str,
        since: float,
        renewed_until: float = -math.inf,
        fence_after: float = 0.0,
    ) -> float:
        """Return when the state of a pod on the node, reported at `since`, may be trusted.

        `renewed_until` is when the lease of the pod's rank may have been renewed for the last time. `fence_after` is
        the value that the rank's agent uses; the longer of this value and the setting counts.
        """
        record = self._records.get(name)
        if record is None:
            return since  # the node was removed from the cluster, so the machine does not exist
        if record.unready_since is not None:
            fence = max(self._timeouts.fence_after or math.inf, fence_after)
            return max(record.unready_since + self._timeouts.lost_after, renewed_until) + fence
        return since if since >= record.ready_since else record.ready_since + self._timeouts.settle

    def now(self, now: float) -> tuple[Node, ...]:
        """Return the nodes as they are reported to the server at the time `now`."""
        return tuple(self._as_node(record, now) for record in self._records.values())

    def deadlines(self) -> Iterator[float]:
        """Yield the times at which nodes change without an event: unready nodes count as lost, refusals expire."""
        yield from (since + self._timeouts.lost_after for since in self._silent_since.values())
        yield from (refusal.until for refusal in self._refusals.values())

    def _as_node(self, record: _NodeRecord, now: float) -> Node:
        node, since = self.foreign.subtract_from(record.observed), record.unready_since
        if since is None:
            return self._with_refusal(node, now)
        if now >= since + self._timeouts.lost_after:
            return replace(
                node, state=NodeState.NOT_READY, reason=record.observed.unready, held="", lift=""
            )
        return replace(node, held=record.observed.unready, lift="")

    def _with_refusal(self, node: Node, now: float) -> Node:
        refusal = self._refusals.get(node.name)
        if refusal is None or now >= refusal.until:
            return node
        times = "" if refusal.count == 1 else f", {refusal.count} times in a row"
        why = f"refused a pod{times}, so it gets none for a while: {refusal.why}"
        return replace(node, held="; ".join(filter(None, (node.held, why))), lift="")
