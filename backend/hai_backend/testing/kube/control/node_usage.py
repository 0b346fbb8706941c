"""Tracks the pods of each node and the resources that they use."""

from __future__ import annotations

from collections import defaultdict

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.control.fit import Amounts, allocatable, is_finished, requests_of
from hai_backend.testing.kube.storage.store import Change, StoredObject


class NodeUsage:
    """The pods and used resources of all nodes, updated with each change of a pod. All controllers share it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, dict[str, StoredObject]] = defaultdict(dict)  # node -> uid -> pod
        self._used: dict[str, Amounts] = defaultdict(dict)
        self._allocations: dict[str, tuple[str, Amounts]] = {}  # uid -> node, requests
        api.store.listen(api.resources["pods"], self.observe)

    def observe(self, change: Change) -> None:
        """Apply a change of a pod. A repeated change has no effect."""
        pod, node = change.stored, str(change.stored.body["spec"].get("nodeName", ""))
        if change.type == "DELETED" or is_finished(pod.body):
            self._release(pod.uid)
        elif node and pod.uid not in self._allocations:
            self._allocate(pod, node)
        if change.type == "DELETED":
            self._pods[node].pop(pod.uid, None)
        elif node:
            self._pods[node][pod.uid] = pod

    def pods_on(self, node: str) -> list[StoredObject]:
        """Return the pods of a node in their last observed state."""
        return list(self._pods[node].values())

    def free(self, node: StoredObject, excluded_uid: str = "") -> Amounts:
        """Return the free resources of a node, as if the pod `excluded_uid` did not exist."""
        used = self._used[node.name]
        free = {k: v - used.get(k, 0) for k, v in allocatable(node.body).items()}
        node_name, allocated = self._allocations.get(excluded_uid, ("", {}))
        if node_name == node.name:
            free = {k: v + allocated.get(k, 0) for k, v in free.items()}
        return free

    def _allocate(self, pod: StoredObject, node: str) -> None:
        requested, used = requests_of(pod.body["spec"]), self._used[node]
        self._allocations[pod.uid] = node, requested
        for name, amount in requested.items():
            used[name] = used.get(name, 0) + amount

    def _release(self, uid: str) -> None:
        node, requested = self._allocations.pop(uid, ("", {}))
        for name, amount in requested.items():
            self._used[node][name] -= amount
