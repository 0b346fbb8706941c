"""The nodes of the cluster from the watch, and samples of how much of it was allocated."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hai.client.tasks.silent_agents import silent_agents_on_node
from hai.client.text.state_style import SILENT, StateStyle
from hai.v1.node_pb2 import NODE_STATE_READY, Node
from hai.v1.node_service_pb2 import WatchNodesResponse
from hai.v1.task_pb2 import Task

SAMPLE_COUNT = 600
"""The number of samples in the chart."""

CONDITION_STYLES = {
    "FREE": StateStyle("□", "good"),
    "HELD": StateStyle("■", "busy"),
    "SHARED": StateStyle("▦", "busy"),
    "MINE": StateStyle("◆", "done"),
    "LEAVING": StateStyle("◑", "held"),
    "SILENT": SILENT,
    "CORDONED": StateStyle("‖", "held"),
    "NOT_READY": StateStyle("✗", "bad"),
}
"""The conditions of a node on the map and in its legend."""


def condition(node: Node, user: str = "") -> str:
    """Return the most urgent condition of a node."""
    if node.state != NODE_STATE_READY:
        return "NOT_READY"
    if node.cordoned:
        return "LEAVING" if node.tenants else "CORDONED"
    if silent_agents_on_node(node):
        return "SILENT"
    if not node.tenants:
        return "FREE"
    if any(tenant.user == user for tenant in node.tenants):
        return "MINE"
    return "SHARED" if len(node.tenants) > 1 else "HELD"


class NodeModel:
    """The nodes by name. An older version never replaces a newer one."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self.version = 0
        self.loaded = False
        self.silent: set[str] = set()  # nodes with silent agents
        # Each sample is a time and the allocated share of usable nodes
        self.usage_samples: deque[tuple[float, float]] = deque(maxlen=SAMPLE_COUNT)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return MappingProxyType(self._nodes)

    def apply(self, answer: WatchNodesResponse) -> set[str]:
        """Apply an answer of the watch. Return the names of the nodes that have changed."""
        changed = set()
        for node in answer.nodes:
            known = self._nodes.get(node.name)
            if known is None or known.version < node.version:
                self._nodes[node.name] = node
                self._update_silent(node)
                changed.add(node.name)
        self.version = max(self.version, answer.version)
        self.loaded = True
        return changed

    def _update_silent(self, node: Node) -> None:
        if silent_agents_on_node(node):
            self.silent.add(node.name)
        else:
            self.silent.discard(node.name)

    def sample(self, now: float) -> None:
        """Add a sample of how much is allocated now."""
        counts = self.counts()
        usable = sum(
            counts[condition_name]
            for condition_name in ("FREE", "HELD", "SHARED", "MINE", "LEAVING", "SILENT")
        )
        if self.loaded and usable:
            if self.usage_samples and self.usage_samples[-1][0] == now:
                self.usage_samples.pop()
            self.usage_samples.append((now, 1 - counts["FREE"] / usable))

    def counts(self, user: str = "") -> Counter[str]:
        """Return the number of nodes in each condition."""
        return Counter(condition(node, user) for node in self._nodes.values())


def per_hour(tasks: Iterable[Task], now: float, hours: int = 24) -> tuple[list[int], list[int]]:
    """Return how many tasks were submitted and how many ended in each of the last hours, ending
    with the current one.
    """
    created, finished = [0] * hours, [0] * hours
    for task in tasks:
        for counts, time in (
            (created, task.create_time.seconds),
            (finished, task.finish_time.seconds),
        ):
            age = int((now - time) // 3600)
            if time and 0 <= age < hours:
                counts[hours - 1 - age] += 1
    return created, finished
