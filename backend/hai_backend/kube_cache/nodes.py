"""Converts a Kubernetes node to a Node: its group, its resources for pods, and whether it accepts pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from hai_backend.domain.node import Node
from hai_backend.kube_cache.source import Body

_DEFAULT_GROUP = "default"
_CONDITION_TAINTS = "node.kubernetes.io/"  # taints that Kubernetes sets for conditions and cordons
_SUFFIXES: Mapping[str, Decimal] = {
    **{s: Decimal(1000) ** i for i, s in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{s: Decimal(1024) ** i for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{"m": Decimal("0.001"), "u": Decimal("0.000001"), "n": Decimal("0.000000001")},
}


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Names of labels and resources.

    `topology` has the labels of switches, the leaf switch first. `tolerated` has key, value and effect of taints.
    """

    group_label: str = "hai.dev/group"
    zone_label: str = "hai.dev/zone"
    topology: tuple[str, ...] = ()
    gpu_resource: str = "nvidia.com/gpu"
    mig_resource: str = "nvidia.com/mig-"
    tolerated: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """`unready` is why the node is not ready, or empty. `node.held` is why a ready node takes no new work, or empty."""

    node: Node
    unready: str = ""
    exact_cpus: Decimal = Decimal()  # allocatable CPUs; `node.cpus` is rounded down
    uid: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return self.node.name


def read_node(body: Body, rules: NodeRules) -> ObservedNode:
    """Return the needed facts about a node. They do not change with each heartbeat of the kubelet."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels: Mapping[str, str] = meta.get("labels") or {}
    offered: Mapping[str, str] = status.get("allocatable") or {}
    conditions: Sequence[Body] = status.get("conditions") or ()
    gpus, mig = _gpus(offered, rules)
    node = Node(
        name=meta["name"],
        group=labels.get(rules.group_label) or _DEFAULT_GROUP,
        zone=labels.get(rules.zone_label, ""),
        gpus=gpus,
        mig=mig,
        cpus=int(cpus := quantity(offered.get("cpu", "0"))),
        memory_bytes=int(quantity(offered.get("memory", "0"))),
        topology=tuple(labels[name] for name in rules.topology if name in labels),
        held="; ".join(_closed_reasons(spec, conditions, rules)),
        lift=_lift_command(meta["name"], spec, conditions, rules),
    )
    return ObservedNode(node, _unready(conditions), cpus, meta.get("uid", ""))


def quantity(text: str) -> Decimal:
    """Parse a Kubernetes quantity. Raises ArithmeticError."""
    for size in (2, 1):
        if text[-size:] in _SUFFIXES and len(text) > size:
            return Decimal(text[:-size]) * _SUFFIXES[text[-size:]]
    return Decimal(text)


def _gpus(offered: Mapping[str, str], rules: NodeRules) -> tuple[int, str]:
    """Return the number of whole GPUs, else the number and name of the most frequent MIG profile.

    Other profiles are ignored, because a pod requests one kind by name.
    """
    if whole_gpus := int(quantity(offered.get(rules.gpu_resource, "0"))):
        return whole_gpus, ""
    slices = {
        name.removeprefix(rules.mig_resource): int(quantity(count))
        for name, count in offered.items()
        if name.startswith(rules.mig_resource)
    }
    profile = max(sorted(slices), key=lambda name: slices[name], default="")
    return (slices[profile], profile) if slices.get(profile) else (0, "")


def _unready(conditions: Sequence[Body]) -> str:
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None:
        return "not ready: its kubelet has not reported yet"
    if ready["status"] == "True":
        return ""
    message = ready.get("message") or ready.get("reason") or "its kubelet does not say why"
    return f"not ready: {message}"


def _closed_reasons(spec: Body, conditions: Sequence[Body], rules: NodeRules) -> Iterator[str]:
    if spec.get("unschedulable"):
        yield "cordoned in Kubernetes"
    for condition in _pressures(conditions):
        yield f"{condition['type']}: {condition.get('message', '')}".removesuffix(": ")
    for taint in _taints(spec, rules):
        value = taint.get("value", "")
        yield f"taint {taint['key']}{'=' * bool(value)}{value}:{taint['effect']}"


def _lift_command(name: str, spec: Body, conditions: Sequence[Body], rules: NodeRules) -> str:
    """Return the commands that let the node accept work again. Empty if no command can do this."""
    if any(_pressures(conditions)):
        return ""
    steps = [f"kubectl uncordon {name}"] if spec.get("unschedulable") else []
    removals = [f"{taint['key']}:{taint['effect']}-" for taint in _taints(spec, rules)]
    return "; ".join(
        [*steps, *([f"kubectl taint node {name} {' '.join(removals)}"] if removals else [])]
    )


def _pressures(conditions: Sequence[Body]) -> Iterator[Body]:
    return (c for c in conditions if c["type"].endswith("Pressure") and c["status"] == "True")


def _taints(spec: Body, rules: NodeRules) -> Iterator[Body]:
    return (taint for taint in spec.get("taints") or () if not _tolerated(taint, rules))


def _tolerated(taint: Body, rules: NodeRules) -> bool:
    if taint["effect"] == "PreferNoSchedule" or taint["key"].startswith(_CONDITION_TAINTS):
        return True
    return any(
        key == taint["key"]
        and value in ("", taint.get("value", ""))
        and effect in ("", taint["effect"])
        for key, value, effect in rules.tolerated
    )
