"""The sub-resources of pods that do something: binding and eviction."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, condition, dig, revised, with_condition
from hai_backend.testing.kube.errors import ApiError, conflict, success, too_many
from hai_backend.testing.kube.storage.deletes import Options
from hai_backend.testing.kube.storage.selectors import selects
from hai_backend.testing.kube.storage.store import StoredObject


def may_evict(api: Api, pod: StoredObject) -> None:
    """Raises ApiError 429 when the pod's budget is spent, 500 when it has several."""
    budgets = [
        b
        for b in api.store.unsorted_objects(api.resources["poddisruptionbudgets"])
        if _covers(b, pod)
    ]
    if len(budgets) > 1:
        raise ApiError(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    for budget in budgets:
        _check(api, budget, pod)


def _check(api: Api, budget: StoredObject, pod: StoredObject) -> None:
    covered = [p for p in api.store.unsorted_objects(pod.resource) if _covers(budget, p)]
    healthy = [p for p in covered if _healthy(p)]
    needed = _needed(budget.body["spec"], len(covered))
    if len(healthy) - 1 >= needed or not _healthy(pod):
        return
    have = f"needs {needed} healthy pods and has {len(healthy)} currently"
    cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget.name} {have}"}
    raise too_many("Cannot evict pod as it would violate the pod's disruption budget.", [cause])


def _covers(budget: StoredObject, pod: StoredObject) -> bool:
    same = budget.namespace == pod.namespace
    return same and selects(budget.body["spec"].get("selector"))(pod.meta.get("labels") or {})


def _healthy(pod: StoredObject) -> bool:
    ready = condition(pod.body, "Ready")
    return not pod.deleting and ready is not None and ready["status"] == "True"


def _needed(spec: dict[str, Any], covered: int) -> int:
    if "minAvailable" in spec:
        return _share(spec["minAvailable"], covered)
    return covered - _share(spec.get("maxUnavailable", 0), covered)


def _share(value: int | str, of: int) -> int:
    if isinstance(value, int):
        return value
    return math.ceil(Fraction(value.removesuffix("%")) * of / 100)


class Pods:
    """Binds and evicts."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self, pod: StoredObject, body: Any) -> Body:
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

    def assign(self, pod: StoredObject, node: str, annotations: Body | None = None) -> StoredObject:
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

    def evict(self, pod: StoredObject, body: Any) -> Body:
        """Delete it if its budget allows that. Raises ApiError 409, 429 or 500."""
        options = Options.read(dig(body, "deleteOptions", {}), {})
        if options.uid and options.uid != pod.uid:
            which = f"UID in precondition: {options.uid}, UID in object meta: {pod.uid}"
            raise conflict(pod.resource, pod.name, f"Precondition failed: {which}")
        if not pod.deleting and dig(pod.body, "status.phase") == "Running":
            may_evict(self._api, pod)
        if not options.dry_run:
            mark_disrupted(self._api, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            self._api.deletes.delete(pod.resource, pod.namespace, pod.name, Options(options.grace))
        return success(pod.resource, pod.name, code=201)


def mark_disrupted(api: Api, pod: StoredObject, reason: str, message: str) -> StoredObject:
    """The pod, with the condition that says why it is about to go."""
    pod = api.latest(pod) or pod
    if condition(pod.body, "DisruptionTarget") is not None:
        return pod
    row = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    status = dig(pod.body, "status", {})
    conditions = with_condition(status.get("conditions") or [], row, api.timers.now())
    return api.writes.set_status(pod, {**status, "conditions": conditions})
