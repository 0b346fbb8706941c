"""Which pods are on which node, and what of the node they take."""

from __future__ import annotations

from collections import defaultdict

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.control.fit import Amounts, allocatable, is_finished, requests_of
from hai_backend.testing.kube.storage.store import Change, StoredObject


class NodeUsage:
    """Kept up to date by what happens to pods; one for all controllers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, dict[str, StoredObject]] = defaultdict(dict)  # node -> uid -> pod
        self._used: dict[str, Amounts] = defaultdict(dict)
        self._allocations: dict[str, tuple[str, Amounts]] = {}  # uid -> node, what it takes
        api.store.listen(api.resources["pods"], self.observe)

    def observe(self, change: Change) -> None:
        """Follow a pod; hearing of it twice is no error."""
        pod, node = change.stored, str(change.stored.body["spec"].get("nodeName", ""))
        if change.type == "DELETED" or is_finished(pod.body):
            self._release(pod.uid)
        elif node and pod.uid not in self._allocations:
            self._allocate(pod, node)
        if change.type == "DELETED":
            self._pods[node].pop(pod.uid, None)
        elif node:
            self._pods[node][pod.uid] = pod

    def on(self, node: str) -> list[StoredObject]:
        """Pods of a node, as last heard of."""
        return list(self._pods[node].values())

    def free(self, node: StoredObject, excluded_uid: str = "") -> Amounts:
        """What is left of a node; `without` is the uid of a pod that does not count."""
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
