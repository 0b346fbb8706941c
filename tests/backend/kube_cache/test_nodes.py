"""Kubernetes nodes are converted to nodes of the platform."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from hai_backend.domain.node import Node
from hai_backend.kube_cache.nodes import NodeRules, ObservedNode, quantity, read_node

RULES = NodeRules(
    topology=("site/leaf", "site/room"),
    tolerated=(("gpu", "", "NoSchedule"), ("special", "yes", "")),
)
READY = {"type": "Ready", "status": "True"}


def node(
    labels: dict[str, str] | None = None, conditions: Any = (READY,), **spec: Any
) -> dict[str, Any]:
    offered = {"cpu": "63500m", "memory": "257698037Ki", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7", "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": offered, "conditions": list(conditions)},
    }


def test_a_node_is_what_it_offers_and_where_its_labels_put_it() -> None:
    labels = {"hai.dev/group": "a100", "hai.dev/zone": "b", "site/room": "r2", "site/leaf": "l7"}
    assert read_node(node(labels), RULES) == ObservedNode(
        Node(
            "n1", "a100", "b", gpus=8, cpus=63, memory_bytes=257698037 << 10, topology=("l7", "r2")
        ),
        exact_cpus=Decimal("63.5"),
    )


def test_without_labels_it_is_in_the_default_group() -> None:
    seen = read_node({"metadata": {"name": "n1"}}, RULES)
    assert seen.node == Node("n1", "default")
    assert seen.unready == "not ready: its kubelet has not reported yet"


@pytest.mark.parametrize(
    ("offered", "gpus", "mig"),
    [
        pytest.param({"nvidia.com/gpu": "8"}, 8, "", id="whole"),
        pytest.param(
            {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "14"}, 14, "1g.10gb", id="slices"
        ),
        pytest.param(
            {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7"}, 4, "", id="both: the whole ones"
        ),
        pytest.param(
            {"nvidia.com/mig-3g.40gb": "2", "nvidia.com/mig-1g.10gb": "4"},
            4,
            "1g.10gb",
            id="two profiles: the one with more",
        ),
        pytest.param({"nvidia.com/mig-1g.10gb": "0"}, 0, "", id="a profile that is not made"),
        pytest.param({}, 0, "", id="none"),
    ],
)
def test_gpus_are_whole_or_slices_of_one_profile(
    offered: dict[str, str], gpus: int, mig: str
) -> None:
    body = node()
    body["status"]["allocatable"] = offered
    seen = read_node(body, RULES).node
    assert (seen.gpus, seen.mig) == (gpus, mig)


def test_a_heartbeat_changes_nothing() -> None:
    beat = node(conditions=[{**READY, "lastHeartbeatTime": "2026-11-21T21:00:00Z"}])
    assert read_node(beat, RULES) == read_node(node(), RULES)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(
            node(conditions=[{"type": "Ready", "status": "Unknown", "message": "stopped posting"}]),
            "not ready: stopped posting",
            id="silent",
        ),
        pytest.param(
            node(conditions=[{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]),
            "not ready: KubeletNotReady",
            id="ill",
        ),
        pytest.param(node(), "", id="well"),
    ],
)
def test_why_it_is_not_ready(body: dict[str, Any], why: str) -> None:
    assert read_node(body, RULES).unready == why


@pytest.mark.parametrize(
    ("body", "lift"),
    [
        pytest.param(node(unschedulable=True), "kubectl uncordon n1", id="cordoned"),
        pytest.param(
            node(unschedulable=True, taints=[{"key": "a", "effect": "NoSchedule", "value": "b"}]),
            "kubectl uncordon n1; kubectl taint node n1 a:NoSchedule-",
            id="and tainted",
        ),
        pytest.param(
            node(
                unschedulable=True,
                conditions=[READY, {"type": "DiskPressure", "status": "True", "message": "full"}],
            ),
            "",
            id="that would not suffice",
        ),
        pytest.param(node(), "", id="nothing holds it"),
    ],
)
def test_how_operators_lift_what_holds_it(body: dict[str, Any], lift: str) -> None:
    assert read_node(body, RULES).node.lift == lift


def taint(key: str, effect: str = "NoSchedule", **more: str) -> dict[str, Any]:
    return node(taints=[{"key": key, "effect": effect, **more}])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(node(unschedulable=True), "cordoned in Kubernetes", id="cordoned"),
        pytest.param(taint("other"), "taint other:NoSchedule", id="a taint"),
        pytest.param(taint("gpu", value="a100"), "", id="a taint that is tolerated"),
        pytest.param(
            taint("gpu", "NoExecute"), "taint gpu:NoExecute", id="tolerated, but not this effect"
        ),
        pytest.param(taint("special", value="no"), "taint special=no:NoSchedule", id="its value"),
        pytest.param(taint("soft", "PreferNoSchedule"), "", id="only a preference"),
        pytest.param(taint("node.kubernetes.io/unreachable", "NoExecute"), "", id="said elsewhere"),
        pytest.param(
            node(
                conditions=[
                    READY,
                    {"type": "DiskPressure", "status": "True", "message": "disk is full"},
                ]
            ),
            "DiskPressure: disk is full",
            id="pressure",
        ),
    ],
)
def test_why_it_takes_nothing_new(body: dict[str, Any], why: str) -> None:
    seen = read_node(body, RULES)
    assert seen.node.held == why
    assert seen.node.usable == (not why)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", "8"), ("500m", "0.5"), ("1.5Gi", "1610612736"), ("2k", "2000"), ("1e3", "1000"),
        ("3E", "3e18"), ("7Ki", "7168"), ("0", "0"), ("250000u", "0.25"),
    ],
)  # fmt: skip
def test_quantities_mean_what_they_do_in_kubernetes(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)
