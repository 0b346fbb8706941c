"""The sub-resources of pods that do something: binding and eviction."""

from __future__ import annotations

from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, condition, dig, revised, with_condition
from hai_backend.testing.kube.deletes import Options
from hai_backend.testing.kube.disruption import may_evict
from hai_backend.testing.kube.errors import ApiError, conflict, success
from hai_backend.testing.kube.stored import Stored


class Pods:
    """Binds and evicts."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self, pod: Stored, body: Any) -> Body:
        """Give it to a node. Raises ApiError 400, or 409 when it has one or is going."""
        node = dig(body, "target.name", "")
        if not node:
            raise ApiError(400, "binding: target.name is required")
        if pod.deleting:
            raise conflict(
                pod.resource,
                pod.name,
                f"pod {pod.name} is being deleted, cannot be assigned to a host",
            )
        if held := dig(pod.body, "spec.nodeName"):
            why = f'pod {pod.name} is already assigned to node "{held}"'
            raise conflict(pod.resource, pod.name, why)
        self.assign(pod, node, dig(body, "metadata.annotations", {}))
        return success(pod.resource, pod.name, code=201)

    def assign(self, pod: Stored, node: str, annotations: Body | None = None) -> Stored:
        """What a binding does to the pod."""
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        old = dig(pod.body, "status.conditions", [])
        conditions = with_condition(old, scheduled, self._api.timers.now())
        meta: Body = {}
        if annotations:
            meta["annotations"] = {**(pod.meta.get("annotations") or {}), **annotations}
        body = revised(
            pod.body,
            metadata=meta,
            spec={**pod.body["spec"], "nodeName": node},
            status={**pod.body["status"], "conditions": conditions},
        )
        return self._api.store.put(pod.resource, body, pod)

    def evict(self, pod: Stored, body: Any) -> Body:
        """Delete it if its budget allows that. Raises ApiError 409, 429 or 500."""
        options = Options.read(dig(body, "deleteOptions", {}), {})
        if options.uid and options.uid != pod.uid:
            which = f"UID in precondition: {options.uid}, UID in object meta: {pod.uid}"
            raise conflict(pod.resource, pod.name, f"Precondition failed: {which}")
        if not pod.deleting and dig(pod.body, "status.phase") == "Running":
            may_evict(self._api, pod)
        if not options.dry:
            disrupted(self._api, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            self._api.deletes.delete(pod.resource, pod.namespace, pod.name, Options(options.grace))
        return success(pod.resource, pod.name, code=201)


def disrupted(api: Api, pod: Stored, reason: str, message: str) -> Stored:
    """The pod, with the condition that says why it is about to go."""
    pod = api.latest(pod) or pod
    if condition(pod.body, "DisruptionTarget") is not None:
        return pod
    row = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    status = dig(pod.body, "status", {})
    conditions = with_condition(status.get("conditions") or [], row, api.timers.now())
    return api.writes.set_status(pod, {**status, "conditions": conditions})
