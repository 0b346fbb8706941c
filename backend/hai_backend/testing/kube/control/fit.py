"""Decides whether a pod fits a node by taints, selectors and resources. Amounts are in thousandths."""

from __future__ import annotations

from functools import lru_cache

from hai_backend.testing.kube.body import Body, dig, quantity
from hai_backend.testing.kube.storage.selectors import expression

Amounts = dict[str, int]


@lru_cache(maxsize=4096)
def thousandths(value: str) -> int:
    return int(quantity(value) * 1000)


def amounts(resources: Body) -> Amounts:
    return {name: thousandths(str(value)) for name, value in resources.items()}


def requests_of(spec: Body) -> Amounts:
    """Return the requests of a pod: for each resource, the sum over its containers, or its largest init container."""
    total: Amounts = {"pods": 1000}
    for container in spec["containers"]:
        for name, value in amounts(dig(container, "resources.requests", {})).items():
            total[name] = total.get(name, 0) + value
    for container in spec.get("initContainers") or []:
        for name, value in amounts(dig(container, "resources.requests", {})).items():
            total[name] = max(total.get(name, 0), value)
    return total


def allocatable(node: Body) -> Amounts:
    status = node.get("status") or {}
    return amounts(status.get("allocatable") or status.get("capacity") or {})


def is_finished(pod: Body) -> bool:
    """Return whether a pod has ended, so that it uses no resources."""
    return dig(pod, "status.phase") in ("Succeeded", "Failed")


def insufficient_resources(free: Amounts, requested: Amounts) -> list[str]:
    """Return the names of the resources that do not suffice."""
    return [name for name, amount in requested.items() if amount > free.get(name, 0)]


def tolerates(tolerations: list[Body], taint: Body) -> bool:
    return any(_tolerates(t, taint) for t in tolerations)


def _tolerates(toleration: Body, taint: Body) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    same_key = toleration.get("key") == taint["key"]
    return bool(same_key and toleration.get("value", "") == taint.get("value", ""))


def untolerated_taint(node: Body, spec: Body, effects: tuple[str, ...]) -> Body | None:
    """Return the first taint of the node that the pod does not tolerate; None if there is none."""
    tolerations = spec.get("tolerations") or []
    taints = dig(node, "spec.taints", [])
    blocking = (t for t in taints if t["effect"] in effects and not tolerates(tolerations, t))
    return next(blocking, None)


def matches_node_selector(node: Body, spec: Body) -> bool:
    """Return whether the node matches the pod's nodeSelector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    requested = spec.get("nodeSelector") or {}
    if any(labels.get(k) != v for k, v in requested.items()):
        return False
    path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = dig(spec, path)
    return terms is None or any(_matches_term(term, node, labels) for term in terms)


def _matches_term(term: Body, node: Body, labels: dict[str, str]) -> bool:
    rows, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    name = {"metadata.name": node["metadata"]["name"]}
    if not rows and not fields:
        return False
    return all(expression(r)(labels) for r in rows) and all(expression(f)(name) for f in fields)


def misfit_reason(node: Body, spec: Body, free: Amounts, requested: Amounts) -> str:
    """Return why the pod does not fit, as a message of the real scheduler; empty if it fits."""
    if taint := untolerated_taint(node, spec, ("NoSchedule", "NoExecute")):
        if dig(node, "spec.unschedulable") and taint["key"] == "node.kubernetes.io/unschedulable":
            return "node(s) were unschedulable"
        value = taint.get("value", "")
        return f"node(s) had untolerated taint {{{taint['key']}: {value}}}"
    if not matches_node_selector(node, spec):
        return "node(s) didn't match Pod's node affinity/selector"
    if missing := insufficient_resources(free, requested):
        return "Too many pods" if missing[0] == "pods" else f"Insufficient {missing[0]}"
    return ""
