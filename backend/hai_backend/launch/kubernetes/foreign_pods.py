"""Pods that are not ours take of a node, too: what they hold is the sum of what they ask for. Pure.

Whose a pod is, its labels and its namespace say. A pod counts from the moment at which it is bound to a node until none
of its containers runs any more, as kubelets count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil

from hai_backend.domain.node import Node
from hai_backend.watch.nodes import NodeSeen, quantity
from hai_backend.watch.source import Body

_OVER = ("Succeeded", "Failed")
_GIB = 1 << 30
Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """`holds`: resource and amount, by name; empty for ours, and for what holds nothing."""

    node: str
    holds: tuple[tuple[str, Decimal], ...] = ()


_NOTHING = ForeignPod("")


@dataclass(frozen=True, slots=True)
class Reserve:
    """What operators leave of a whole node for what else runs there, and what they call GPUs and slices of them."""

    cpus: float = 1.0
    memory_bytes: int = 2 * _GIB
    gpu: str = "nvidia.com/gpu"
    mig: str = "nvidia.com/mig-"


class Foreign:
    """What other pods hold of each node."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._held: dict[str, dict[str, Decimal]] = {}

    def changed(self, before: ForeignPod | None, after: ForeignPod | None) -> None:
        """A pod as it was and as it is; None: it was not, or is not, there."""
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None and pod.holds:
                held = self._held.setdefault(pod.node, {})
                for name, amount in pod.holds:
                    held[name] = held.get(name, Decimal()) + sign * amount

    def less(self, seen: NodeSeen) -> Node:
        """The node with the room that they leave. Where they leave none of something, it takes nothing new."""
        node, held = seen.node, self._held.get(seen.name)
        if not held or not any(held.values()):
            return node
        cpu, memory = held.get("cpu", Decimal()), held.get("memory", Decimal())
        gpu = int(
            held.get(self._reserve.mig + node.mig if node.mig else self._reserve.gpu, Decimal())
        )
        told = self._told(node, seen.exact_cpus, cpu, memory, gpu)
        cpus = int(seen.exact_cpus - cpu)
        left = node.memory_bytes - ceil(memory / _GIB) * _GIB  # in steps: small changes are none
        gpus = node.gpus - gpu
        if (
            (node.cpus and cpus < 1)
            or (node.memory_bytes and left < _GIB)
            or (node.gpus and gpus < 1)
        ):
            return replace(node, held="; ".join(filter(None, (node.held, told))), lift="")
        return replace(
            node,
            cpus=max(0, cpus),
            memory_bytes=max(0, left),
            gpus=max(0, gpus),
            foreign=told if self._much(cpu, memory, gpu) else "",
        )

    def _much(self, cpu: Decimal, memory: Decimal, gpu: int) -> bool:
        """More than operators have reckoned with."""
        reserve = self._reserve
        return cpu > Decimal(reserve.cpus) or memory > reserve.memory_bytes or gpu > 0

    def _told(self, node: Node, cpus: Decimal, cpu: Decimal, memory: Decimal, gpu: int) -> str:
        total = -(-node.memory_bytes // _GIB)
        parts = (
            (cpu, f"{float(cpu):.4g} of {float(cpus):.4g} cpus"),
            (memory, f"{ceil(memory / _GIB)} of {total} GB"),
            (gpu, f"{gpu} of {node.gpus} gpus"),
        )
        return f"other pods hold {', '.join(words for amount, words in parts if amount)}"


def read_foreign(body: Body, ours: Mapping[str, str], namespace: str) -> ForeignPod:
    """What a pod holds of its node, unless it is ours: has these labels, in this namespace."""
    meta, spec = body["metadata"], body.get("spec") or {}
    node, phase = spec.get("nodeName", ""), (body.get("status") or {}).get("phase")
    is_ours = (
        meta.get("namespace") == namespace and ours.items() <= (meta.get("labels") or {}).items()
    )
    if is_ours or not node or phase in _OVER:
        return _NOTHING
    return ForeignPod(node, tuple(sorted((n, v) for n, v in requested(spec).items() if v)))


def requested(spec: Body) -> dict[str, Decimal]:
    """What a kubelet reserves: containers and sidecars together, or the largest moment of its start, and overhead."""
    running = _sum(map(_requests, spec.get("containers") or ()))
    sidecars: dict[str, Decimal] = {}
    start: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        asks = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, asks))
            asks = {}
        start = _most(start, _sum((sidecars, asks)))
    whole = _amounts((spec.get("resources") or {}).get("requests") or {})  # of the pod as a whole
    total = {**_most(_sum((running, sidecars)), start), **whole}
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


def _most(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    names = {**one, **other}
    return {name: max(one.get(name, Decimal()), other.get(name, Decimal())) for name in names}
