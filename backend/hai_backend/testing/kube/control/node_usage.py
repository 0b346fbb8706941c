"""Which pods are on which node, and what of the node they take."""

from __future__ import annotations

from collections import defaultdict

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.control.fit import Amounts, allocatable, over, requests_of
from hai_backend.testing.kube.storage.store import Change, Stored


class Seats:
    """Kept up to date by what happens to pods; one for all controllers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, dict[str, Stored]] = defaultdict(dict)  # node -> uid -> pod
        self._taken: dict[str, Amounts] = defaultdict(dict)
        self._held: dict[str, tuple[str, Amounts]] = {}  # uid -> node, what it takes
        api.store.listen(api.resources["pods"], self.hear)

    def hear(self, change: Change) -> None:
        """Follow a pod; hearing of it twice is no error."""
        pod, node = change.stored, str(change.stored.body["spec"].get("nodeName", ""))
        if change.type == "DELETED" or over(pod.body):
            self._free(pod.uid)
        elif node and pod.uid not in self._held:
            self._take(pod, node)
        if change.type == "DELETED":
            self._pods[node].pop(pod.uid, None)
        elif node:
            self._pods[node][pod.uid] = pod

    def on(self, node: str) -> list[Stored]:
        """Pods of a node, as last heard of."""
        return list(self._pods[node].values())

    def free(self, node: Stored, without: str = "") -> Amounts:
        """What is left of a node; `without` is the uid of a pod that does not count."""
        taken = self._taken[node.name]
        left = {k: v - taken.get(k, 0) for k, v in allocatable(node.body).items()}
        where, held = self._held.get(without, ("", {}))
        if where == node.name:
            left = {k: v + held.get(k, 0) for k, v in left.items()}
        return left

    def _take(self, pod: Stored, node: str) -> None:
        wanted, taken = requests_of(pod.body["spec"]), self._taken[node]
        self._held[pod.uid] = node, wanted
        for name, amount in wanted.items():
            taken[name] = taken.get(name, 0) + amount

    def _free(self, uid: str) -> None:
        node, wanted = self._held.pop(uid, ("", {}))
        for name, amount in wanted.items():
            self._taken[node][name] -= amount
