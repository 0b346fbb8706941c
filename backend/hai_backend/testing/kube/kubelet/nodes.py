"""Simulates the kubelets of nodes, which register, admit pods, become unreachable, lose power and recover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, stamp, with_condition
from hai_backend.testing.kube.control.events import EventRecorder
from hai_backend.testing.kube.control.fit import (
    allocatable,
    insufficient_resources,
    is_finished,
    matches_node_selector,
    requests_of,
    untolerated_taint,
)
from hai_backend.testing.kube.control.node_usage import NodeUsage
from hai_backend.testing.kube.kubelet.pod_state import LocalPod, rejected_status
from hai_backend.testing.kube.kubelet.runtime import Runtime
from hai_backend.testing.kube.storage.store import Change, StoredObject


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to create."""

    name: str
    cpu: str = "64"
    memory: str = "256Gi"
    gpus: int = 8
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    other_resources: Mapping[str, str] = field(default_factory=dict)  # such as rdma/hca

    def capacity(self) -> Body:
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "pods": str(self.pods),
            **gpus,
            **self.other_resources,
        }


def initial_status(name: str, capacity: Body) -> Body:
    """Return the status that a node reports when it registers."""
    addresses = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": name},
    ]
    info = dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), "")
    info |= {"kubeletVersion": "v1.36.2", "containerRuntimeVersion": "fake://1", "osImage": "fake"}
    info |= {"architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "fake"}
    return {"capacity": capacity, "allocatable": capacity, "addresses": addresses, "nodeInfo": info}


def pressure_condition(kind: str) -> Body:
    """Return the condition of a node that has enough of a resource."""
    return {"type": kind, "status": "False", "reason": "KubeletHasSufficient", "message": "enough"}


def admission_failure(
    node: StoredObject, pod: StoredObject, others: list[LocalPod]
) -> tuple[str, str] | None:
    """Return the reason and the message with which the kubelet rejects a pod; None if it admits the pod."""
    spec, requested = pod.body["spec"], requests_of(pod.body["spec"])
    if not matches_node_selector(node.body, spec):
        return (
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match",
        )
    if untolerated_taint(node.body, spec, ("NoExecute",)):
        return "TaintToleration", "Pod was rejected: Predicate TaintToleration failed"
    free = allocatable(node.body)
    for local in others:
        if local.phase not in ("Succeeded", "Failed"):
            for name, amount in requests_of(local.pod.body["spec"]).items():
                free[name] = free.get(name, 0) - amount
    if not (missing := insufficient_resources(free, requested)):
        return None
    name = missing[0]
    capacity = allocatable(node.body).get(name, 0)
    used = f"used: {(capacity - free.get(name, 0)) // 1000}, capacity: {capacity // 1000}"
    requested_text = f"requested: {requested[name] // 1000}, {used}"
    return (
        f"OutOf{name}",
        f"Pod was rejected: Node didn't have enough resource: {name}, {requested_text}",
    )


class FakeNodes:
    """All simulated nodes. They call `on_heartbeat` when they report, and `on_silence` when they become unreachable."""

    def __init__(
        self, api: Api, usage: NodeUsage, recorder: EventRecorder, runtime: Runtime
    ) -> None:
        self._api, self._usage, self._recorder = api, usage, recorder
        self._runtime = runtime
        self._alive: dict[str, bool] = {}
        self.on_heartbeat: Callable[[str], None] = lambda name: None
        self.on_silence: Callable[[str], None] = lambda name: None
        runtime.is_alive = self.is_alive
        api.store.listen(api.resources["pods"], self._on_pod_change)

    @property
    def names(self) -> list[str]:
        """The names of all simulated nodes."""
        return sorted(self._alive)

    def is_alive(self, name: str) -> bool:
        return self._alive.get(name, False)

    def register(self, spec: NodeSpec) -> None:
        """Create the Node unless it exists, and report that it is ready."""
        self._alive[spec.name] = True
        if self._api.get("nodes", "", spec.name) is None:
            meta = {"name": spec.name, "labels": dict(spec.labels)}
            self._api.writes.create(self._api.resources["nodes"], "", {"metadata": meta})
        self._report_status(spec.name, spec.capacity())

    def partition(self, name: str) -> None:
        """Make a node unreachable. Its containers continue. Raises KeyError if the node is not simulated."""
        if name not in self._alive:
            raise KeyError(f"node {name} is not simulated; there are {self.names}")
        self._alive[name] = False
        self.on_silence(name)

    def power_loss(self, name: str) -> None:
        """Stop a node and all its containers."""
        self._runtime.crash(name)
        self.partition(name)

    def heal(self, name: str) -> None:
        """Let a node recover. It reports the state of its pods, and handles the changes that it has missed."""
        self._alive[name] = True
        self._report_status(name, {})
        for local in self._runtime.pods_on(name):
            now = self._api.latest(local.pod)
            if now is None:
                self._runtime.end_deleted(local)
            elif now.deleting:
                self._runtime.stop(local)
            else:
                self._runtime.resume(local)
        for pod in self._usage.pods_on(name):
            self._sync_pod(pod)

    def unready(self, name: str, reason: str = "KubeletNotReady", message: str = "") -> None:
        """Let the kubelet report that it is not ready, until `heal`."""
        self._report_status(
            name, {}, ready="False", reason=reason, message=message or "the test says so"
        )

    def _report_status(
        self,
        name: str,
        capacity: Body,
        ready: str = "True",
        reason: str = "KubeletReady",
        message: str = "",
    ) -> None:
        """Report the conditions of a node. An empty `capacity` keeps the other fields of its status."""
        node = self._api.get("nodes", "", name)
        if node is None:
            return
        status = dict(node.body.get("status") or {})
        if capacity:
            status |= initial_status(name, capacity)
        row = {"type": "Ready", "status": ready, "reason": reason}
        row["message"] = message or "kubelet is posting ready status"
        now = self._api.timers.now()
        rows = [
            *(pressure_condition(k) for k in ("MemoryPressure", "DiskPressure", "PIDPressure")),
            row,
        ]
        conditions = status.get("conditions") or []
        for each in rows:
            heartbeat_row = {**each, "lastHeartbeatTime": stamp(now)}
            conditions = with_condition(conditions, heartbeat_row, now)
        self._api.writes.set_status(node, {**status, "conditions": conditions})
        self.on_heartbeat(name)

    def _on_pod_change(self, change: Change) -> None:
        name = change.stored.body["spec"].get("nodeName")
        if not name or not self.is_alive(name):
            return
        if change.type == "DELETED":
            local = self._runtime.pods.get(change.stored.uid)
            if local is not None:
                self._runtime.end_deleted(local)
        else:
            self._sync_pod(change.stored)

    def _sync_pod(self, observed: StoredObject) -> None:
        """Start, stop or delete a pod according to its current object."""
        pod = self._api.latest(observed)
        if pod is None:
            return
        local = self._runtime.pods.get(pod.uid)
        if local is not None:
            grace = pod.meta.get("deletionGracePeriodSeconds")
            if pod.deleting and grace != local.requested_grace:
                local.requested_grace = grace
                self._runtime.stop(local)
        elif pod.deleting:
            self._api.deletes.delete_if_current(pod, grace=0)
        elif not is_finished(pod.body):
            self._admit_pod(pod)

    def _admit_pod(self, pod: StoredObject) -> None:
        """Start a pod, or reject it if it does not fit the node."""
        spec = pod.body["spec"]
        node = self._api.get("nodes", "", spec["nodeName"])
        if node is None:
            return
        failure = admission_failure(node, pod, self._runtime.pods_on(node.name))
        if failure is None:
            self._runtime.start(pod)
            return
        status = rejected_status(pod, *failure, self._api.timers.now())
        self._api.writes.set_status(pod, status)
        self._recorder.warning(pod, *failure, "kubelet")
