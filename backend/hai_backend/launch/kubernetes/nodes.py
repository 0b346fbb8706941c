"""The state of nodes over time: since when a node is silent, when it counts as lost, and when to trust its pods. Pure.

The pods of a dead node stay in the API server, and the object of a pod may be deleted while its containers still run.
So the state of pods on a silent node is trusted only `fence_after` seconds after the node was lost and after the rank
may have renewed its lease for the last time. By then every agent whose lease was not renewed has ended.
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
from hai_backend.launch.kubernetes.foreign_pods import ForeignUsage, NodeReserve
from hai_backend.watch.nodes import ObservedNode


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `fence_after` 0: agents never end by themselves, so time alone never proves that one has ended."""

    lost_after: float = 30.0  # a node that is not ready for so long counts as lost
    fence_after: float = FENCE_SECONDS  # so long after that, nothing runs there
    settle: float = (
        KUBELET_SETTLE_SECONDS  # a recovered node ends within it what it should have ended
    )
    forced_delete: float = FORCED_DELETE_SECONDS  # a pod deleted by force may run for so long
    suspect_pause: float = (
        60.0  # a node that refused a pod gets no work; doubles with each refusal …
    )
    suspect_pause_max: float = 900.0  # … up to this
    reserve: NodeReserve = field(default_factory=NodeReserve)  # of a whole node, for other pods
    transient_failure: float = 30.0  # a mount or image that fails for so long has failed


@dataclass(slots=True)
class _NodeRecord:
    observed: ObservedNode
    ready_since: float
    unready_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The newest of `count` consecutive refusals of pods by a node."""

    pod: str  # its uid
    why: str
    until: float
    count: int


class Nodes:
    """Times are of one steady clock."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._records: dict[str, _NodeRecord] = {}
        self._silent_since: dict[str, float] = {}  # since when
        self._refusals: dict[str, _Refusal] = {}
        self.foreign = ForeignUsage(timeouts.reserve)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def observe(self, name: str, observed: ObservedNode | None, now: float) -> bool:
        """A node as it is; None: it was removed. True: it was added or removed, or its readiness changed."""
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
        """A node refused a pod: something unknown uses its resources, so it gets no new work for a while."""
        before = self._refusals.get(name)
        if before is not None and before.pod == pod:
            return  # reported before
        count = before.count + 1 if before is not None else 1
        timeouts = self._timeouts
        pause = min(timeouts.suspect_pause_max, timeouts.suspect_pause * 2.0 ** min(count - 1, 16))
        self._refusals[name] = _Refusal(pod, why, now + pause, count)

    def pod_accepted(self, name: str) -> None:
        """A pod has started on the node."""
        self._refusals.pop(name, None)

    def is_untrusted(self, name: str) -> bool:
        """Whether the reported state of its pods may be outdated."""
        return name in self._silent_since or (name != "" and name not in self._records)

    def trusted_at(
        self,
        name: str,
        since: float,
        renewed_until: float = -math.inf,
        fence_after: float = 0.0,
    ) -> float:
        """When a state of a pod there that was reported at `since` may be trusted.

        `renewed_until`: when the lease of its rank may have been renewed for the last time. `fence_after`: the value of
        the rank's agent; the longer of this and the setting counts.
        """
        record = self._records.get(name)
        if record is None:
            return since  # it was removed from the cluster: there is no such machine
        if record.unready_since is not None:
            fence = max(self._timeouts.fence_after or math.inf, fence_after)
            return max(record.unready_since + self._timeouts.lost_after, renewed_until) + fence
        return since if since >= record.ready_since else record.ready_since + self._timeouts.settle

    def now(self, now: float) -> tuple[Node, ...]:
        """The nodes as they are reported to the server."""
        return tuple(self._as_node(record, now) for record in self._records.values())

    def deadlines(self) -> Iterator[float]:
        """When time alone changes nodes: silent ones count as lost, suspect ones get work again."""
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
