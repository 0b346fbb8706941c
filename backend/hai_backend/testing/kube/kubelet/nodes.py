"""The nodes that have a kubelet of ours: they register, take pods, fall silent, lose power and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, stamp, with_condition
from hai_backend.testing.kube.control.events import Recorder
from hai_backend.testing.kube.control.fit import (
    allocatable,
    lacking,
    over,
    requests_of,
    selected,
    untolerated,
)
from hai_backend.testing.kube.control.node_usage import Seats
from hai_backend.testing.kube.kubelet.pod_state import LocalPod, rejected_status
from hai_backend.testing.kube.kubelet.runtime import Runtime
from hai_backend.testing.kube.storage.store import Change, Stored


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to be made."""

    name: str
    cpu: str = "64"
    memory: str = "256Gi"
    gpus: int = 8
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)  # other resources, such as rdma/hca

    def capacity(self) -> Body:
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), **gpus, **self.more}


def first_status(name: str, capacity: Body) -> Body:
    """What a node says of itself when it registers."""
    addresses = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": name},
    ]
    info = dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), "")
    info |= {"kubeletVersion": "v1.36.2", "containerRuntimeVersion": "fake://1", "osImage": "fake"}
    info |= {"architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "fake"}
    return {"capacity": capacity, "allocatable": capacity, "addresses": addresses, "nodeInfo": info}


def pressure(kind: str) -> Body:
    """A condition that is well."""
    return {"type": kind, "status": "False", "reason": "KubeletHasSufficient", "message": "enough"}


def refusal(node: Stored, pod: Stored, others: list[LocalPod]) -> tuple[str, str] | None:
    """Reason and message, in the kubelet's words; None when the node takes the pod."""
    spec, wanted = pod.body["spec"], requests_of(pod.body["spec"])
    if not selected(node.body, spec):
        return (
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match",
        )
    if untolerated(node.body, spec, ("NoExecute",)):
        return "TaintToleration", "Pod was rejected: Predicate TaintToleration failed"
    free = allocatable(node.body)
    for local in others:
        if local.phase not in ("Succeeded", "Failed"):
            for name, amount in requests_of(local.pod.body["spec"]).items():
                free[name] = free.get(name, 0) - amount
    if not (missing := lacking(free, wanted)):
        return None
    name = missing[0]
    capacity = allocatable(node.body).get(name, 0)
    used = f"used: {(capacity - free.get(name, 0)) // 1000}, capacity: {capacity // 1000}"
    asked = f"requested: {wanted[name] // 1000}, {used}"
    return (
        f"OutOf{name}",
        f"Pod was rejected: Node didn't have enough resource: {name}, {asked}",
    )


class Machines:
    """All kubelets. `heard` and `silent` are told when a node says something, and when it stops."""

    def __init__(self, api: Api, seats: Seats, recorder: Recorder, runtime: Runtime) -> None:
        self._api, self._seats, self._recorder = api, seats, recorder
        self._runtime = runtime
        self._alive: dict[str, bool] = {}
        self.heard: Callable[[str], None] = lambda name: None
        self.silent: Callable[[str], None] = lambda name: None
        runtime.alive = self.alive
        api.store.listen(api.resources["pods"], self._hear)

    @property
    def names(self) -> list[str]:
        """Nodes that have a kubelet of ours."""
        return sorted(self._alive)

    def alive(self, name: str) -> bool:
        return self._alive.get(name, False)

    def register(self, spec: NodeSpec) -> None:
        """Make the Node, or take one over that was made by somebody, and be ready."""
        self._alive[spec.name] = True
        if self._api.get("nodes", "", spec.name) is None:
            meta = {"name": spec.name, "labels": dict(spec.labels)}
            self._api.writes.create(self._api.resources["nodes"], "", {"metadata": meta})
        self._report(spec.name, spec.capacity())

    def partition(self, name: str) -> None:
        """The node cannot be reached; its containers run on. Raises KeyError when it has no kubelet of ours."""
        if name not in self._alive:
            raise KeyError(f"no kubelet of ours on {name}; there are {self.names}")
        self._alive[name] = False
        self.silent(name)

    def power_loss(self, name: str) -> None:
        """The node stops, and everything on it."""
        self._runtime.crash(name)
        self.partition(name)

    def heal(self, name: str) -> None:
        """The node is back: it reports what has become of its pods, and learns what is asked of it."""
        self._alive[name] = True
        self._report(name, {})
        for local in self._runtime.on(name):
            now = self._api.latest(local.pod)
            if now is None:
                self._runtime.forget(local)
            elif now.deleting:
                self._runtime.stop(local)
            else:
                self._runtime.revive(local)
        for pod in self._seats.on(name):
            self._follow(pod)

    def unready(self, name: str, reason: str = "KubeletNotReady", message: str = "") -> None:
        """The kubelet itself says that it is not ready; `heal` ends that."""
        self._report(name, {}, ready="False", reason=reason, message=message or "the test says so")

    def _report(
        self,
        name: str,
        capacity: Body,
        ready: str = "True",
        reason: str = "KubeletReady",
        message: str = "",
    ) -> None:
        node = self._api.get("nodes", "", name)
        if node is None:
            return
        status = dict(node.body.get("status") or {})
        if capacity:
            status |= first_status(name, capacity)
        row = {"type": "Ready", "status": ready, "reason": reason}
        row["message"] = message or "kubelet is posting ready status"
        now = self._api.timers.now()
        rows = [*(pressure(k) for k in ("MemoryPressure", "DiskPressure", "PIDPressure")), row]
        conditions = status.get("conditions") or []
        for one in rows:
            beat = {**one, "lastHeartbeatTime": stamp(now)}
            conditions = with_condition(conditions, beat, now)
        self._api.writes.set_status(node, {**status, "conditions": conditions})
        self.heard(name)

    def _hear(self, change: Change) -> None:
        name = change.stored.body["spec"].get("nodeName")
        if not name or not self.alive(name):
            return
        if change.type == "DELETED":
            local = self._runtime.pods.get(change.stored.uid)
            if local is not None:
                self._runtime.forget(local)
        else:
            self._follow(change.stored)

    def _follow(self, heard: Stored) -> None:
        pod = self._api.latest(heard)
        if pod is None:
            return
        local = self._runtime.pods.get(pod.uid)
        if local is not None:
            grace = pod.meta.get("deletionGracePeriodSeconds")
            if pod.deleting and grace != local.told_grace:
                local.told_grace = grace
                self._runtime.stop(local)
        elif pod.deleting:
            self._api.deletes.end(pod, grace=0)
        elif not over(pod.body):
            self._admit(pod)

    def _admit(self, pod: Stored) -> None:
        spec = pod.body["spec"]
        node = self._api.get("nodes", "", spec["nodeName"])
        if node is None:
            return
        refused = refusal(node, pod, self._runtime.on(node.name))
        if refused is None:
            self._runtime.start(pod)
            return
        status = rejected_status(pod, *refused, self._api.timers.now())
        self._api.writes.set_status(pod, status)
        self._recorder.warning(pod, *refused, "kubelet")
