"""The node controller, which sets taints of nodes, and marks nodes without heartbeats as unreachable."""

from __future__ import annotations

from collections.abc import Callable

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import (
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    Body,
    condition,
    dig,
    revised,
    stamp,
    with_condition,
)
from hai_backend.testing.kube.control.events import EventRecorder
from hai_backend.testing.kube.control.node_usage import NodeUsage
from hai_backend.testing.kube.storage.store import Change, StoredObject
from hai_backend.testing.kube.timers import Timer

_MANAGED_TAINTS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)
_LEASE_NAMESPACE = "kube-node-lease"


class NodeController:
    """Handles heartbeats. A node for which `is_alive` returns True needs no heartbeats; other nodes must send them."""

    def __init__(
        self,
        api: Api,
        usage: NodeUsage,
        recorder: EventRecorder,
        is_alive: Callable[[str], bool],
        grace: float,
    ) -> None:
        self._api, self._usage, self._recorder = api, usage, recorder
        self._is_alive = is_alive
        self._grace = grace
        self._deadlines: dict[str, Timer] = {}
        api.store.listen(api.resources["nodes"], self._on_node_change)
        api.store.listen(api.resources["leases"], self._on_lease_change)

    def silence_started(self, name: str) -> None:
        """Start to wait for the next heartbeat of a node."""
        self._cancel_deadline(name)
        self._deadlines[name] = self._api.timers.call_later(
            self._grace, lambda: self._mark_unreachable(name)
        )

    def heartbeat(self, name: str) -> None:
        """Handle a heartbeat of a node."""
        self._cancel_deadline(name)
        if not self._is_alive(name):
            self.silence_started(name)

    def _on_node_change(self, change: Change) -> None:
        name = change.stored.name
        if change.type == "DELETED":
            self._cancel_deadline(name)
            return
        node = self._api.latest(change.stored)
        if node is None:
            return
        before = dig(change.previous.body, "status") if change.previous is not None else None
        if dig(node.body, "status") != before and _ready(node.body) == "True":
            self.heartbeat(name)
        self._update_taints(node)
        if _ready(node.body) != "True" and change.previous is not None:
            self._mark_pods_unready(name)

    def _on_lease_change(self, change: Change) -> None:
        if change.stored.namespace == _LEASE_NAMESPACE and change.type != "DELETED":
            self.heartbeat(change.stored.name)

    def _update_taints(self, node: StoredObject) -> None:
        """Set the taints that the state of the node requires, and keep taints that others have set."""
        old = dig(node.body, "spec.taints", [])
        foreign_taints = [t for t in old if t["key"] not in _MANAGED_TAINTS]
        made = [*foreign_taints, *_taints_of(node.body)]
        if _keys(made) != _keys(old):
            added = [
                {**t, "timeAdded": stamp(self._api.timers.now())}
                for t in made
                if t not in foreign_taints
            ]
            self._api.writes.set_spec(
                node, revised(node.body["spec"], taints=[*foreign_taints, *added] or None)
            )

    def _mark_unreachable(self, name: str) -> None:
        node = self._api.get("nodes", "", name)
        self._deadlines.pop(name, None)
        if node is None:
            return
        now = self._api.timers.now()
        row = {"status": "Unknown", "reason": "NodeStatusUnknown"}
        row["message"] = "Kubelet stopped posting node status."
        conditions = dig(node.body, "status.conditions", [])
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready"):
            conditions = with_condition(conditions, {"type": kind, **row}, now)
        self._api.writes.set_status(node, {**node.body["status"], "conditions": conditions})
        message = f"Node {name} status is now: NodeNotReady"
        self._recorder.normal(node, "NodeNotReady", message, "node-controller")

    def _mark_pods_unready(self, name: str) -> None:
        """Set the pods of a node not ready. They keep their phase, because their real state is unknown."""
        for pod in self._usage.pods_on(name):
            now = self._api.latest(pod)
            ready = condition(now.body, "Ready") if now is not None else None
            if now is None or ready is None or ready["status"] != "True":
                continue
            row = {"type": "Ready", "status": "False"}
            old = now.body["status"]["conditions"]
            conditions = with_condition(old, row, self._api.timers.now())
            self._api.writes.set_status(now, {**now.body["status"], "conditions": conditions})
            self._recorder.warning(now, "NodeNotReady", "Node is not ready", "node-controller")

    def _cancel_deadline(self, name: str) -> None:
        if (timer := self._deadlines.pop(name, None)) is not None:
            timer.cancel()


def _ready(node: Body) -> str:
    found = condition(node, "Ready")
    return str(found["status"]) if found is not None else ""


def _taints_of(node: Body) -> list[Body]:
    """Return the taints for the state of a node."""
    ready, made = _ready(node), []
    if ready == "Unknown":
        made = [{"key": UNREACHABLE, "effect": e} for e in ("NoSchedule", "NoExecute")]
    elif ready == "False":
        made = [{"key": NOT_READY, "effect": e} for e in ("NoSchedule", "NoExecute")]
    elif not ready:
        made = [{"key": NOT_READY, "effect": "NoSchedule"}]
    if dig(node, "spec.unschedulable"):
        made.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    return made


def _keys(taints: list[Body]) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in taints}
