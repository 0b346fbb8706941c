"""Subtracts from each node the resources that foreign pods request there. Pure.

The labels and the namespace show whether a pod is ours. As in a kubelet, a pod counts from its binding to a node until
none of its containers runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil

from hai_backend.domain.node import Node
from hai_backend.kube_cache.nodes import ObservedNode, quantity
from hai_backend.kube_cache.source import Body

_FINISHED_PHASES = ("Succeeded", "Failed")
_GIB = 1 << 30
Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """The requests of a pod: resource names with amounts. They are empty for our pods and for finished pods."""

    node: str
    requests: tuple[tuple[str, Decimal], ...] = ()


_NOTHING = ForeignPod("")


@dataclass(frozen=True, slots=True)
class NodeReserve:
    """The part of a whole node that operators reserve for other pods, and the resource names of GPUs and GPU slices."""

    cpus: float = 1.0
    memory_bytes: int = 2 * _GIB
    gpu: str = "nvidia.com/gpu"
    mig: str = "nvidia.com/mig-"


class ForeignUsage:
    """Sums what foreign pods request on each node."""

    def __init__(self, reserve: NodeReserve) -> None:
        self._reserve = reserve
        self._requested: dict[str, dict[str, Decimal]] = {}

    def changed(self, before: ForeignPod | None, after: ForeignPod | None) -> None:
        """Count the change of a pod. `before` or `after` is None if the pod did not exist then."""
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None and pod.requests:
                totals = self._requested.setdefault(pod.node, {})
                for name, amount in pod.requests:
                    totals[name] = totals.get(name, Decimal()) + sign * amount

    def subtract_from(self, observed: ObservedNode) -> Node:
        """Return the node without the resources that foreign pods request.

        If nothing of a resource is left, the node takes no new work.
        """
        node, totals = observed.node, self._requested.get(observed.name)
        if not totals or not any(totals.values()):
            return node
        cpu, memory = totals.get("cpu", Decimal()), totals.get("memory", Decimal())
        gpu = int(
            totals.get(self._reserve.mig + node.mig if node.mig else self._reserve.gpu, Decimal())
        )
        usage = self._usage_text(node, observed.exact_cpus, cpu, memory, gpu)
        cpus = int(observed.exact_cpus - cpu)
        # In steps of 1 GiB, so that small changes are ignored.
        free_memory = node.memory_bytes - ceil(memory / _GIB) * _GIB
        gpus = node.gpus - gpu
        if (
            (node.cpus and cpus < 1)
            or (node.memory_bytes and free_memory < _GIB)
            or (node.gpus and gpus < 1)
        ):
            return replace(node, held="; ".join(filter(None, (node.held, usage))), lift="")
        return replace(
            node,
            cpus=max(0, cpus),
            memory_bytes=max(0, free_memory),
            gpus=max(0, gpus),
            foreign=usage if self._exceeds_reserve(cpu, memory, gpu) else "",
        )

    def _exceeds_reserve(self, cpu: Decimal, memory: Decimal, gpu: int) -> bool:
        """Return whether foreign pods request more than operators have reserved."""
        reserve = self._reserve
        return cpu > Decimal(reserve.cpus) or memory > reserve.memory_bytes or gpu > 0

    def _usage_text(
        self, node: Node, cpus: Decimal, cpu: Decimal, memory: Decimal, gpu: int
    ) -> str:
        total = -(-node.memory_bytes // _GIB)
        parts = (
            (cpu, f"{float(cpu):.4g} of {float(cpus):.4g} cpus"),
            (memory, f"{ceil(memory / _GIB)} of {total} GB"),
            (gpu, f"{gpu} of {node.gpus} gpus"),
        )
        return f"other pods hold {', '.join(text for amount, text in parts if amount)}"


def read_foreign(body: Body, ours: Mapping[str, str], namespace: str) -> ForeignPod:
    """Return the requests of a pod on its node. They are empty if the pod is ours, finished, or not bound to a node.

    A pod is ours if it is in `namespace` and has the labels `ours`.
    """
    meta, spec = body["metadata"], body.get("spec") or {}
    node, phase = spec.get("nodeName", ""), (body.get("status") or {}).get("phase")
    is_ours = (
        meta.get("namespace") == namespace and ours.items() <= (meta.get("labels") or {}).items()
    )
    if is_ours or not node or phase in _FINISHED_PHASES:
        return _NOTHING
    return ForeignPod(node, tuple(sorted((n, v) for n, v in effective_requests(spec).items() if v)))


def effective_requests(spec: Body) -> dict[str, Decimal]:
    """Return the resources that a kubelet reserves for a pod.

    These are the larger of two sums, plus the overhead: all containers with all sidecars, or the largest init container
    with the sidecars that start before it. Requests of the pod as a whole override these sums.
    """
    running = _sum(map(_requests, spec.get("containers") or ()))
    sidecars: dict[str, Decimal] = {}
    start: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, requests))
            requests = {}
        start = _largest(start, _sum((sidecars, requests)))
    pod_level = _amounts(
        (spec.get("resources") or {}).get("requests") or {}
    )  # requests of the whole pod
    total = {**_largest(_sum((running, sidecars)), start), **pod_level}
    return _sum((total, _amounts(spec.get("overhead") or {})))


def _requests(container: Body) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(texts: Mapping[str, str]) -> dict[str, Decimal]:
    return {name: quantity(str(text)) for name, text in texts.items()}


def _sum(parts: Iterable[Amounts]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Decimal()) + amount
    return total


def _largest(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    names = {**one, **other}
    return {name: max(one.get(name, Decimal()), other.get(name, Decimal())) for name in names}
