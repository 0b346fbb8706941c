"""Pods that lose their place: NoExecute taints drive them away, and those of a node that is gone are collected."""

from __future__ import annotations

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.control.fit import over, tolerates
from hai_backend.testing.kube.control.node_usage import Seats
from hai_backend.testing.kube.control.pods import disrupted
from hai_backend.testing.kube.storage.store import Change, Stored
from hai_backend.testing.kube.timers import Timer

_QUARANTINE_SECONDS = 40.0


class PodGc:
    """The taint manager and the collector of orphaned pods."""

    def __init__(self, api: Api, seats: Seats) -> None:
        self._api, self._seats = api, seats
        self._leaving: dict[str, Timer] = {}  # uid of the pod
        api.store.listen(api.resources["nodes"], self._hear_node)
        api.store.listen(api.resources["pods"], self._hear_pod)

    def _hear_node(self, change: Change) -> None:
        name = change.stored.name
        if change.type == "DELETED":
            self._api.timers.call_later(_QUARANTINE_SECONDS, lambda: self._collect(name))
        elif change.previous is None or _driving(change.stored) != _driving(change.previous):
            for pod in self._seats.on(name):
                self._judge(pod, change.stored)

    def _hear_pod(self, change: Change) -> None:
        pod, name = change.stored, dig(change.stored.body, "spec.nodeName", "")
        if change.type == "DELETED":
            self._stay(pod)
        elif name and dig(change.previous.body if change.previous else {}, "spec.nodeName") != name:
            node = self._api.get("nodes", "", name)
            if node is None:
                self._api.timers.call_later(_QUARANTINE_SECONDS, lambda: self._collect(name))
            elif _driving(node):
                self._judge(pod, node)

    def _judge(self, pod: Stored, node: Stored) -> None:
        self._stay(pod)
        taints = _driving(node)
        if not taints or over(pod.body) or pod.deleting:
            return
        seconds = _bears(pod.body["spec"].get("tolerations") or [], taints)
        if seconds is not None:
            drive = self._api.timers.call_later(seconds, lambda: self._drive_away(pod))
            self._leaving[pod.uid] = drive

    def _stay(self, pod: Stored) -> None:
        if (timer := self._leaving.pop(pod.uid, None)) is not None:
            timer.cancel()

    def _drive_away(self, pod: Stored) -> None:
        self._leaving.pop(pod.uid, None)
        now = self._api.latest(pod)
        if now is not None and not now.deleting:
            message = "Taint manager: deleting due to NoExecute taint"
            disrupted(self._api, now, "DeletionByTaintManager", message)
            self._api.deletes.end(now)

    def _collect(self, node: str) -> None:
        if self._api.get("nodes", "", node) is not None:
            return
        for pod in self._seats.on(node):
            message = "PodGC: node no longer exists"
            marked = disrupted(self._api, pod, "DeletionByPodGC", message)
            if not over(marked.body):
                marked = self._api.writes.set_status(
                    marked, {**marked.body["status"], "phase": "Failed"}
                )
            self._api.deletes.end(marked, grace=0)


def _driving(node: Stored) -> list[Body]:
    return [t for t in dig(node.body, "spec.taints", []) if t["effect"] == "NoExecute"]


def _bears(tolerations: list[Body], taints: list[Body]) -> float | None:
    """How long a pod may stay; None for ever."""
    if not all(tolerates(tolerations, taint) for taint in taints):
        return 0.0
    used = [t for t in tolerations if any(tolerates([t], taint) for taint in taints)]
    limits = [float(t["tolerationSeconds"]) for t in used if "tolerationSeconds" in t]
    return max(0.0, min(limits)) if limits else None
