"""Foreign pods: the resources that they use on nodes, also if the server may not list these pods."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from hai_backend.domain.node import Node
from hai_backend.kube_cache.nodes import ObservedNode
from hai_backend.launch.base import LaunchFailed, NodeList
from hai_backend.launch.kubernetes.foreign_pods import (
    ForeignPod,
    ForeignUsage,
    NodeReserve,
    effective_requests,
    read_foreign,
)
from hai_backend.launch.request import RankResources
from hai_backend.testing.kube import Answer
from hai_backend.testing.kube.body import Body

from .stage import OPTIONS, There, Watched, rank, story, there

GB = 1 << 30
OURS = {"app": "hai"}


def asks(**requests: str) -> Body:
    return {"name": "x", "resources": {"requests": requests}}


def told(spec: Body) -> dict[str, str]:
    return {name: str(amount) for name, amount in effective_requests(spec).items()}


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        pytest.param({"containers": [asks(cpu="1"), asks(cpu="500m")]}, {"cpu": "1.500"}, id="all"),
        pytest.param(
            {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="3"), asks(cpu="2")]},
            {"cpu": "3"},
            id="the largest moment of its start",
        ),
        pytest.param(
            {
                "containers": [asks(cpu="2")],
                "initContainers": [{**asks(cpu="1"), "restartPolicy": "Always"}, asks(cpu="1")],
            },
            {"cpu": "3"},
            id="a sidecar runs beside it",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]},
            {"nvidia.com/gpu": "2"},
            id="a limit without a request",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m"}},
            {"cpu": "1.250"},
            id="overhead",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            {"cpu": "4"},
            id="of the pod as a whole",
        ),
        pytest.param({"containers": [{"name": "x"}]}, {}, id="nothing"),
    ],
)
def test_what_a_pod_holds(spec: Body, held: dict[str, str]) -> None:
    assert told(spec) == held


POD: dict[str, Any] = {
    "metadata": {"namespace": "kube-system", "labels": {}},
    "spec": {"nodeName": "n1", "containers": [asks(cpu="1")]},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        pytest.param({}, True, id="of the system"),
        pytest.param({"status": {"phase": "Failed"}}, False, id="it has ended"),
        pytest.param({"spec": {"containers": [asks(cpu="1")]}}, False, id="on no node yet"),
        pytest.param({"metadata": {"namespace": "hai", "labels": OURS}}, False, id="ours"),
        pytest.param(
            {"metadata": {"namespace": "other", "labels": OURS}}, True, id="only labelled like ours"
        ),
        pytest.param(
            {"metadata": {"namespace": "hai", "labels": {}}}, True, id="somebody's beside ours"
        ),
    ],
)
def test_whose_pods_count(change: dict[str, Any], counts: bool) -> None:
    seen = read_foreign({**POD, **change}, OURS, "hai")
    assert seen == (ForeignPod("n1", (("cpu", Decimal(1)),)) if counts else ForeignPod(""))


NODE = ObservedNode(Node("n1", gpus=8, cpus=63, memory_bytes=100 * GB), exact_cpus=Decimal("63.9"))


@pytest.mark.parametrize(
    ("holds", "left", "held", "foreign"),
    [
        pytest.param({}, (63, 100, 8), "", "", id="nothing"),
        pytest.param({"cpu": "0.5", "memory": f"{GB // 4}"}, (63, 99, 8), "", "", id="little"),
        pytest.param(
            {"cpu": "3.5"}, (60, 100, 8), "", "other pods hold 3.5 of 63.9 cpus", id="much"
        ),
        pytest.param(
            {"nvidia.com/gpu": "3"}, (63, 100, 5), "", "other pods hold 3 of 8 gpus", id="GPUs"
        ),
        pytest.param(
            {"cpu": "63"}, (63, 100, 8), "other pods hold 63 of 63.9 cpus", "", id="all CPUs"
        ),
        pytest.param(
            {"nvidia.com/gpu": "8"}, (63, 100, 8), "other pods hold 8 of 8 gpus", "", id="all GPUs"
        ),
    ],
)
def test_what_is_left_of_a_node(
    holds: dict[str, str], left: tuple[int, int, int], held: str, foreign: str
) -> None:
    made = ForeignUsage(NodeReserve())
    pod = ForeignPod("n1", tuple((name, Decimal(text)) for name, text in holds.items()))
    made.changed(None, pod)
    node = made.subtract_from(NODE)
    assert (node.cpus, node.memory_bytes // GB, node.gpus) == left
    assert (node.held, node.foreign) == (held, foreign)
    made.changed(pod, None)
    assert made.subtract_from(NODE) == NODE.node


def test_slices_of_gpus_are_told_apart() -> None:
    made = ForeignUsage(NodeReserve())
    made.changed(None, ForeignPod("n1", (("nvidia.com/mig-1g.10gb", Decimal(3)),)))
    sliced = replace(NODE, node=replace(NODE.node, mig="1g.10gb"))
    assert (made.subtract_from(NODE).gpus, made.subtract_from(sliced).gpus) == (8, 5)


async def nodes_of(one: Watched) -> dict[str, tuple[int, str]]:
    seen = await one.next(NodeList)
    assert isinstance(seen, NodeList)
    return {node.name: (node.cpus, node.held or node.foreign) for node in seen.nodes}


@story
async def test_what_others_hold_is_followed_as_their_pods_come_and_go() -> None:
    async with there() as it:
        make(it, foreign("n0", cpu="63500m"))
        one = await it.watch()
        await one.launcher.start([rank(0, "n1")])  # our own pod does not count as foreign
        make(it, foreign("n1", cpu="4"))
        assert await nodes_of(one) == {
            "n0": (64, "other pods hold 63.5 of 64 cpus"),
            "n1": (60, "other pods hold 4 of 64 cpus"),
        }
        it.kubelet.exit("theirs-n0", namespace="kube-system")  # type: ignore[attr-defined]
        assert (await nodes_of(one))["n0"] == (64, "")


def make(it: There, pod: Body) -> None:
    it.cluster.api.writes.create(it.cluster.api.resources["pods"], "kube-system", pod)


@story
async def test_a_kubelet_that_refuses_is_told_with_its_node_that_gets_nothing_for_a_while() -> None:
    """The server may not see pods of others, so it does not know that one has its CPUs."""
    async with there() as it:
        it.cluster.faults.add(Answer(403), verb="list", resource="pods", nth=1)
        one = await it.watch(replace(OPTIONS, relist_seconds=1000.0))
        make(it, foreign("n0", cpu="62"))
        await asyncio.sleep(1)
        asks = replace(rank(0).run, resources=(RankResources(cpus=4),))
        await one.launcher.start([replace(rank(0), run=asks)])
        seen = await one.next(NodeList)
        assert isinstance(seen, NodeList)
        why = "refused a pod, so it gets none for a while: the node has no room (cpu)"
        assert [node.held.startswith(why) for node in seen.nodes] == [True, False]
        failed = await one.next()
        assert isinstance(failed, LaunchFailed)
        assert failed.unschedulable
        seen = await one.next(NodeList)
        assert isinstance(seen, NodeList)
        assert [node.held for node in seen.nodes] == ["", ""]


def foreign(node: str, **requests: str) -> Body:
    """Return a pod that does not belong to this installation."""
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"theirs-{node}", "namespace": "kube-system"},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]},
    }
