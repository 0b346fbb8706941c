"""Does a PodDisruptionBudget let a pod go."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import condition
from hai_backend.testing.kube.errors import ApiError, too_many
from hai_backend.testing.kube.selectors import selects
from hai_backend.testing.kube.stored import Stored


def may_evict(api: Api, pod: Stored) -> None:
    """Raises ApiError 429 when the pod's budget is spent, 500 when it has several."""
    budgets = [b for b in api.store.each(api.resources["poddisruptionbudgets"]) if _covers(b, pod)]
    if len(budgets) > 1:
        raise ApiError(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    for budget in budgets:
        _check(api, budget, pod)


def _check(api: Api, budget: Stored, pod: Stored) -> None:
    covered = [p for p in api.store.each(pod.resource) if _covers(budget, p)]
    healthy = [p for p in covered if _healthy(p)]
    needed = _needed(budget.body["spec"], len(covered))
    if len(healthy) - 1 >= needed or not _healthy(pod):
        return
    have = f"needs {needed} healthy pods and has {len(healthy)} currently"
    cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget.name} {have}"}
    raise too_many("Cannot evict pod as it would violate the pod's disruption budget.", [cause])


def _covers(budget: Stored, pod: Stored) -> bool:
    same = budget.namespace == pod.namespace
    return same and selects(budget.body["spec"].get("selector"))(pod.meta.get("labels") or {})


def _healthy(pod: Stored) -> bool:
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
