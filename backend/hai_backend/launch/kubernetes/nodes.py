"""The nodes over time: since when one is silent, when it counts as lost, and when a death there may be believed.

A dead node keeps its pods, and a pod's object may go while its containers run on. So what is said of pods on a node
that is silent counts only `fence_after` seconds after the node was lost, and after the rank could renew its lease for
the last time: by then agents whose lease is not renewed have ended. Pure.
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
from hai_backend.launch.kubernetes.foreign_pods import Foreign, Reserve
from hai_backend.watch.nodes import NodeSeen


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. `fence_after` 0: time alone never proves a death, for agents then never end by themselves."""

    lost_after: float = 30.0  # a node that is not ready for so long is lost
    fence_after: float = FENCE_SECONDS  # and so long after that nothing runs there any more
    settle: float = (
        KUBELET_SETTLE_SECONDS  # a node that is back ends what it should have ended before
    )
    vanished: float = FORCED_DELETE_SECONDS  # a pod that is gone without a last word may run on
    suspect: float = 60.0  # a node that refused a pod gets none; doubles with each refusal …
    suspect_most: float = 900.0  # … up to this
    reserve: Reserve = field(default_factory=Reserve)  # of a whole node, for what else runs there
    trouble: float = 30.0  # a mount, an image … that fails for so long has failed


@dataclass(slots=True)
class _Known:
    seen: NodeSeen
    ready_since: float
    unready_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A node did not take a pod (the newest of so many in a row)."""

    pod: str  # its uid
    why: str
    until: float
    count: int


class Nodes:
    """Times are of one steady clock."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._known: dict[str, _Known] = {}
        self._silent: dict[str, float] = {}  # since when
        self._refusals: dict[str, _Refusal] = {}
        self.foreign = Foreign(patience.reserve)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def saw(self, name: str, seen: NodeSeen | None, now: float) -> bool:
        """A node as it is, or None when it was removed. Answers whether it came, went, fell silent or spoke again."""
        known = self._known.get(name)
        if seen is not None and seen.unready:
            self._silent.setdefault(name, now)
        else:
            self._silent.pop(name, None)
        if seen is None:
            self._refusals.pop(name, None)
            return self._known.pop(name, None) is not None
        if known is None:
            self._known[name] = _Known(seen, now, now if seen.unready else None)
            return True
        known.seen = seen
        if bool(seen.unready) == (known.unready_since is not None):
            return False
        known.unready_since = now if seen.unready else None
        known.ready_since = known.ready_since if seen.unready else now
        return True

    def refused(self, name: str, pod: str, why: str, now: float) -> None:
        """A node did not take a pod: it holds something that is not seen from here, so it gets nothing for a while."""
        before = self._refusals.get(name)
        if before is not None and before.pod == pod:
            return  # said again
        count = before.count + 1 if before is not None else 1
        patience = self._patience
        pause = min(patience.suspect_most, patience.suspect * 2.0 ** min(count - 1, 16))
        self._refusals[name] = _Refusal(pod, why, now + pause, count)

    def accepted(self, name: str) -> None:
        """A pod has started there."""
        self._refusals.pop(name, None)

    def away(self, name: str) -> bool:
        """Whether what the cluster says of pods there is to be doubted."""
        return name in self._silent or (name != "" and name not in self._known)

    def trusted_at(
        self,
        name: str,
        since: float,
        renewed_until: float = -math.inf,
        fence_after: float = 0.0,
    ) -> float:
        """When something that was said of a pod there at `since` may be believed.

        `renewed_until`: when the lease of its rank may have been renewed for the last time. `fence_after`: as the
        rank's agent knows it; the longer of this and the setting counts.
        """
        known = self._known.get(name)
        if known is None:
            return since  # the operators, or the cloud, say that there is no such machine
        if known.unready_since is not None:
            fence = max(self._patience.fence_after or math.inf, fence_after)
            return max(known.unready_since + self._patience.lost_after, renewed_until) + fence
        return since if since >= known.ready_since else known.ready_since + self._patience.settle

    def now(self, now: float) -> tuple[Node, ...]:
        """The nodes as the server sees them."""
        return tuple(self._as_node(known, now) for known in self._known.values())

    def turns(self) -> Iterator[float]:
        """When time alone changes nodes: silent ones count as lost, suspect ones get pods again."""
        yield from (since + self._patience.lost_after for since in self._silent.values())
        yield from (refusal.until for refusal in self._refusals.values())

    def _as_node(self, known: _Known, now: float) -> Node:
        node, since = self.foreign.less(known.seen), known.unready_since
        if since is None:
            return self._with_refusal(node, now)
        if now >= since + self._patience.lost_after:
            return replace(
                node, state=NodeState.NOT_READY, reason=known.seen.unready, held="", lift=""
            )
        return replace(node, held=known.seen.unready, lift="")

    def _with_refusal(self, node: Node, now: float) -> Node:
        refusal = self._refusals.get(node.name)
        if refusal is None or now >= refusal.until:
            return node
        times = "" if refusal.count == 1 else f", {refusal.count} times in a row"
        why = f"refused a pod{times}, so it gets none for a while: {refusal.why}"
        return replace(node, held="; ".join(filter(None, (node.held, why))), lift="")
