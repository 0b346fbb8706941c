"""The subresources `binding` and `eviction` of pods."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, condition, dig, revised, with_condition
from hai_backend.testing.kube.errors import ApiError, conflict, success, too_many
from hai_backend.testing.kube.storage.deletes import Options
from hai_backend.testing.kube.storage.selectors import object_selector
from hai_backend.testing.kube.storage.store import StoredObject


def check_budgets(api: Api, pod: StoredObject) -> None:
    """Raise ApiError 429 if a disruption budget forbids to evict the pod, 500 if the pod has several budgets."""
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
        _check_budget(api, budget, pod)


def _check_budget(api: Api, budget: StoredObject, pod: StoredObject) -> None:
    covered = [p for p in api.store.unsorted_objects(pod.resource) if _covers(budget, p)]
    healthy = [p for p in covered if _is_healthy(p)]
    needed = _count_needed(budget.body["spec"], len(covered))
    if len(healthy) - 1 >= needed or not _is_healthy(pod):
        return
    have = f"needs {needed} healthy pods and has {len(healthy)} currently"
    cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget.name} {have}"}
    raise too_many("Cannot evict pod as it would violate the pod's disruption budget.", [cause])


def _covers(budget: StoredObject, pod: StoredObject) -> bool:
    same_namespace = budget.namespace == pod.namespace
    return same_namespace and object_selector(budget.body["spec"].get("selector"))(
        pod.meta.get("labels") or {}
    )


def _is_healthy(pod: StoredObject) -> bool:
    ready = condition(pod.body, "Ready")
    return not pod.deleting and ready is not None and ready["status"] == "True"


def _count_needed(spec: dict[str, Any], covered: int) -> int:
    if "minAvailable" in spec:
        return _scale(spec["minAvailable"], covered)
    return covered - _scale(spec.get("maxUnavailable", 0), covered)


def _scale(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    return math.ceil(Fraction(value.removesuffix("%")) * total / 100)


class Pods:
    """Binds and evicts pods."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self, pod: StoredObject, body: Any) -> Body:
        """Bind a pod to a node. Raises ApiError 400, or 409 if the pod has a node or is being deleted."""
        node = dig(body, "target.name", "")
        if not node:
            raise ApiError(400, "binding: target.name is required")
        if pod.deleting:
            raise conflict(
                pod.resource,
                pod.name,
                f"pod {pod.name} is being deleted, cannot be assigned to a host",
            )
        if current_node := dig(pod.body, "spec.nodeName"):
            why = f'pod {pod.name} is already assigned to node "{current_node}"'
            raise conflict(pod.resource, pod.name, why)
        self.assign(pod, node, dig(body, "metadata.annotations", {}))
        return success(pod.resource, pod.name, code=201)

    def assign(self, pod: StoredObject, node: str, annotations: Body | None = None) -> StoredObject:
        """Set the node and the conditions of a pod that is bound."""
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
        """Delete a pod if its disruption budget allows that. Raises ApiError 409, 429 or 500."""
        options = Options.read(dig(body, "deleteOptions", {}), {})
        if options.uid and options.uid != pod.uid:
            which = f"UID in precondition: {options.uid}, UID in object meta: {pod.uid}"
            raise conflict(pod.resource, pod.name, f"Precondition failed: {which}")
        if not pod.deleting and dig(pod.body, "status.phase") == "Running":
            check_budgets(self._api, pod)
        if not options.dry_run:
            mark_disrupted(self._api, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            self._api.deletes.delete(pod.resource, pod.namespace, pod.name, Options(options.grace))
        return success(pod.resource, pod.name, code=201)


def mark_disrupted(api: Api, pod: StoredObject, reason: str, message: str) -> StoredObject:
    """Set the condition with the reason why a pod will be deleted, and return the pod."""
    pod = api.latest(pod) or pod
    if condition(pod.body, "DisruptionTarget") is not None:
        return pod
    row = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    status = dig(pod.body, "status", {})
    conditions = with_condition(status.get("conditions") or [], row, api.timers.now())
    return api.writes.set_status(pod, {**status, "conditions": conditions})
