"""The node controller: trusts nodes that say they are ready, and gives up those that no longer say anything."""

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
from hai_backend.testing.kube.control.events import Recorder
from hai_backend.testing.kube.control.node_usage import Seats
from hai_backend.testing.kube.storage.store import Change, Stored
from hai_backend.testing.kube.timers import Timer

_MINE = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)
_LEASES = "kube-node-lease"


class NodeController:
    """`alive(node)` says whether a kubelet of ours lives there; other nodes must send heartbeats themselves."""

    def __init__(
        self, api: Api, seats: Seats, recorder: Recorder, alive: Callable[[str], bool], grace: float
    ) -> None:
        self._api, self._seats, self._recorder = api, seats, recorder
        self._alive = alive
        self._grace = grace
        self._deadlines: dict[str, Timer] = {}
        api.store.listen(api.resources["nodes"], self._hear)
        api.store.listen(api.resources["leases"], self._hear_lease)

    def silent(self, name: str) -> None:
        """From now on nothing is heard of the node."""
        self._stop(name)
        self._deadlines[name] = self._api.timers.call_later(
            self._grace, lambda: self._give_up(name)
        )

    def heard(self, name: str) -> None:
        """A sign of life."""
        self._stop(name)
        if not self._alive(name):
            self.silent(name)

    def _hear(self, change: Change) -> None:
        name = change.stored.name
        if change.type == "DELETED":
            self._stop(name)
            return
        node = self._api.latest(change.stored)
        if node is None:
            return
        before = dig(change.previous.body, "status") if change.previous is not None else None
        if dig(node.body, "status") != before and _ready(node.body) == "True":
            self.heard(name)
        self._taint(node)
        if _ready(node.body) != "True" and change.previous is not None:
            self._doubt_pods(name)

    def _hear_lease(self, change: Change) -> None:
        if change.stored.namespace == _LEASES and change.type != "DELETED":
            self.heard(change.stored.name)

    def _taint(self, node: Stored) -> None:
        old = dig(node.body, "spec.taints", [])
        kept = [t for t in old if t["key"] not in _MINE]
        made = [*kept, *_taints_of(node.body)]
        if _keys(made) != _keys(old):
            added = [
                {**t, "timeAdded": stamp(self._api.timers.now())} for t in made if t not in kept
            ]
            self._api.writes.set_spec(
                node, revised(node.body["spec"], taints=[*kept, *added] or None)
            )

    def _give_up(self, name: str) -> None:
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

    def _doubt_pods(self, name: str) -> None:
        """Its pods keep their phase: nobody knows better."""
        for pod in self._seats.on(name):
            now = self._api.latest(pod)
            ready = condition(now.body, "Ready") if now is not None else None
            if now is None or ready is None or ready["status"] != "True":
                continue
            row = {"type": "Ready", "status": "False"}
            old = now.body["status"]["conditions"]
            conditions = with_condition(old, row, self._api.timers.now())
            self._api.writes.set_status(now, {**now.body["status"], "conditions": conditions})
            self._recorder.warning(now, "NodeNotReady", "Node is not ready", "node-controller")

    def _stop(self, name: str) -> None:
        if (timer := self._deadlines.pop(name, None)) is not None:
            timer.cancel()


def _ready(node: Body) -> str:
    found = condition(node, "Ready")
    return str(found["status"]) if found is not None else ""


def _taints_of(node: Body) -> list[Body]:
    """What the node's state asks for."""
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
