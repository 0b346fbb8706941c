"""Evicts pods from nodes with NoExecute taints, and deletes pods of removed nodes."""

from __future__ import annotations

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.control.fit import is_finished, tolerates
from hai_backend.testing.kube.control.node_usage import NodeUsage
from hai_backend.testing.kube.control.pods import mark_disrupted
from hai_backend.testing.kube.storage.store import Change, StoredObject
from hai_backend.testing.kube.timers import Timer

_QUARANTINE_SECONDS = 40.0


class TaintEvictionController:
    """The taint manager, and the garbage collector of pods whose node does not exist."""

    def __init__(self, api: Api, usage: NodeUsage) -> None:
        self._api, self._usage = api, usage
        self._evictions: dict[str, Timer] = {}  # by uid of the pod
        api.store.listen(api.resources["nodes"], self._on_node_change)
        api.store.listen(api.resources["pods"], self._on_pod_change)

    def _on_node_change(self, change: Change) -> None:
        name = change.stored.name
        if change.type == "DELETED":
            self._api.timers.call_later(_QUARANTINE_SECONDS, lambda: self._collect_orphans(name))
        elif change.previous is None or _no_execute_taints(change.stored) != _no_execute_taints(
            change.previous
        ):
            for pod in self._usage.pods_on(name):
                self._schedule_eviction(pod, change.stored)

    def _on_pod_change(self, change: Change) -> None:
        """Schedule the eviction of a pod that was bound to a node with taints, or to a node that does not exist."""
        pod, name = change.stored, dig(change.stored.body, "spec.nodeName", "")
        if change.type == "DELETED":
            self._cancel_eviction(pod)
        elif name and dig(change.previous.body if change.previous else {}, "spec.nodeName") != name:
            node = self._api.get("nodes", "", name)
            if node is None:
                self._api.timers.call_later(
                    _QUARANTINE_SECONDS, lambda: self._collect_orphans(name)
                )
            elif _no_execute_taints(node):
                self._schedule_eviction(pod, node)

    def _schedule_eviction(self, pod: StoredObject, node: StoredObject) -> None:
        self._cancel_eviction(pod)
        taints = _no_execute_taints(node)
        if not taints or is_finished(pod.body) or pod.deleting:
            return
        seconds = _toleration_seconds(pod.body["spec"].get("tolerations") or [], taints)
        if seconds is not None:
            eviction = self._api.timers.call_later(seconds, lambda: self._evict(pod))
            self._evictions[pod.uid] = eviction

    def _cancel_eviction(self, pod: StoredObject) -> None:
        if (timer := self._evictions.pop(pod.uid, None)) is not None:
            timer.cancel()

    def _evict(self, pod: StoredObject) -> None:
        self._evictions.pop(pod.uid, None)
        now = self._api.latest(pod)
        if now is not None and not now.deleting:
            message = "Taint manager: deleting due to NoExecute taint"
            mark_disrupted(self._api, now, "DeletionByTaintManager", message)
            self._api.deletes.delete_if_current(now)

    def _collect_orphans(self, node: str) -> None:
        if self._api.get("nodes", "", node) is not None:
            return
        for pod in self._usage.pods_on(node):
            message = "PodGC: node no longer exists"
            marked = mark_disrupted(self._api, pod, "DeletionByPodGC", message)
            if not is_finished(marked.body):
                marked = self._api.writes.set_status(
                    marked, {**marked.body["status"], "phase": "Failed"}
                )
            self._api.deletes.delete_if_current(marked, grace=0)


def _no_execute_taints(node: StoredObject) -> list[Body]:
    return [t for t in dig(node.body, "spec.taints", []) if t["effect"] == "NoExecute"]


def _toleration_seconds(tolerations: list[Body], taints: list[Body]) -> float | None:
    """Return for how many seconds a pod may stay; None means forever."""
    if not all(tolerates(tolerations, taint) for taint in taints):
        return 0.0
    used = [t for t in tolerations if any(tolerates([t], taint) for taint in taints)]
    limits = [float(t["tolerationSeconds"]) for t in used if "tolerationSeconds" in t]
    return max(0.0, min(limits)) if limits else None
