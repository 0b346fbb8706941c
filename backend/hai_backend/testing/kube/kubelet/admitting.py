"""Does a kubelet take a pod that was given to its node: it counts for itself, whatever the scheduler has counted."""

from __future__ import annotations

from hai_backend.testing.kube.fit import allocatable, lacking, requests_of, selected, untolerated
from hai_backend.testing.kube.kubelet.containers import LocalPod
from hai_backend.testing.kube.stored import Stored


def refusal(node: Stored, pod: Stored, others: list[LocalPod]) -> tuple[str, str] | None:
    """Reason and message, in the kubelet's words; None when the node takes the pod."""
    spec, wanted = pod.body["spec"], requests_of(pod.body["spec"])
    if not selected(node.body, spec):
        return (
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match",
        )
    if untolerated(node.body, spec, ("NoExecute",)):
        return "TaintToleration", "Pod was rejected: Predicate TaintToleration failed"
    free = allocatable(node.body)
    for local in others:
        if local.phase not in ("Succeeded", "Failed"):
            for name, amount in requests_of(local.pod.body["spec"]).items():
                free[name] = free.get(name, 0) - amount
    if not (missing := lacking(free, wanted)):
        return None
    name = missing[0]
    capacity = allocatable(node.body).get(name, 0)
    used = f"used: {(capacity - free.get(name, 0)) // 1000}, capacity: {capacity // 1000}"
    asked = f"requested: {wanted[name] // 1000}, {used}"
    return (
        f"OutOf{name}",
        f"Pod was rejected: Node didn't have enough resource: {name}, {asked}",
    )
