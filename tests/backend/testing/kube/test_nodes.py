"""Nodes that become unreachable, lose power, recover or are removed, and the effects on their pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hai_backend.testing.kube import InstantKubelet, NodeSpec
from hai_backend.testing.kube.body import condition

Pod = Callable[..., dict[str, Any]]


def node(http: Any, name: str = "node0") -> dict[str, Any]:
    return dict(http.cluster.api.get("nodes", "", name).body)


def taints(http: Any) -> set[tuple[str, str]]:
    rows = node(http)["spec"].get("taints") or []
    return {(t["key"].rpartition("/")[2], t["effect"]) for t in rows}


def status(body: Any, kind: str) -> str:
    found = condition(body, kind)
    return found["status"] if found else ""


@pytest.fixture
async def running(http: Any, pod: Pod) -> Any:
    """A pod that runs on node0."""
    await http.create(pod("a", nodeName="node0"))
    await http.cluster.settle()
    assert http.pod()["status"]["phase"] == "Running"
    return http


async def test_a_silent_node_is_not_ready_after_its_grace_and_its_pods_keep_their_phase(
    running: Any,
) -> None:
    running.cluster.nodes.partition("node0")
    await running.cluster.advance(49)
    assert status(node(running), "Ready") == "True"
    await running.cluster.advance(2)
    assert status(node(running), "Ready") == "Unknown"
    assert taints(running) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    pod = running.pod()
    assert (pod["status"]["phase"], status(pod, "Ready")) == ("Running", "False")


async def test_a_pod_of_a_silent_node_is_driven_away_and_stays_terminating(running: Any) -> None:
    running.cluster.nodes.partition("node0")
    await running.cluster.advance(50 + 299)
    assert "deletionTimestamp" not in running.pod()["metadata"]
    await running.cluster.advance(2)
    pod = running.pod()
    assert "deletionTimestamp" in pod["metadata"]
    assert condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    await running.cluster.advance(3600)
    assert running.pod() is not None


async def test_a_pod_deleted_by_force_still_runs_on_a_silent_node(running: Any) -> None:
    """Two copies of one rank can therefore run at the same time."""
    running.cluster.nodes.partition("node0")
    await running.delete("a", gracePeriodSeconds=0)
    await running.cluster.settle()
    assert running.pod() is None
    old = running.cluster.kubelet.find("a")
    assert not running.cluster.kubelet.has_ended(old)
    running.cluster.nodes.heal("node0")
    await running.cluster.settle()
    assert running.cluster.kubelet.pods == {}


async def test_a_node_that_comes_back_in_time_was_never_gone(running: Any) -> None:
    running.cluster.nodes.partition("node0")
    await running.cluster.advance(100)
    running.cluster.nodes.heal("node0")
    await running.cluster.advance(1000)
    assert taints(running) == set()
    pod = running.pod()
    assert (status(pod, "Ready"), "deletionTimestamp" in pod["metadata"]) == ("True", False)


async def test_a_pod_that_was_deleted_meanwhile_goes_when_its_node_is_back(running: Any) -> None:
    running.cluster.nodes.partition("node0")
    await running.delete("a")
    await running.cluster.advance(60)
    assert running.pod() is not None
    running.cluster.nodes.heal("node0")
    await running.cluster.settle()
    assert running.pod() is None


async def test_after_a_loss_of_power_the_pod_has_failed(running: Any) -> None:
    running.cluster.nodes.power_loss("node0")
    await running.cluster.advance(60)
    assert running.pod()["status"]["phase"] == "Running"  # its real state is unknown
    running.cluster.nodes.heal("node0")
    await running.cluster.settle()
    pod = running.pod()
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["status"]["phase"], ended["exitCode"]) == ("Failed", 255)


async def test_pods_of_a_node_that_is_deleted_are_collected(running: Any) -> None:
    running.cluster.nodes.partition("node0")
    await running.ask("DELETE", "api/v1/nodes/node0")
    await running.cluster.advance(39)
    assert running.pod() is not None
    await running.cluster.advance(2)
    assert running.pod() is None


async def test_a_kubelet_may_say_that_it_is_not_ready(running: Any) -> None:
    running.cluster.nodes.unready("node0", message="container runtime is down")
    await running.cluster.settle()
    assert taints(running) == {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
    assert status(running.pod(), "Ready") == "False"


async def test_a_node_without_a_kubelet_is_trusted_while_it_says_so(http: Any) -> None:
    await http.ask("POST", "api/v1/nodes", {"metadata": {"name": "other"}})
    await http.cluster.settle()
    name = "api/v1/nodes/other/status"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "mine"}]}}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    await http.ask("PATCH", name, ready, headers=headers)
    await http.cluster.settle()
    assert "taints" not in node(http, "other")["spec"]
    await http.cluster.advance(40)
    lease = {"metadata": {"name": "other"}, "spec": {"holderIdentity": "other"}}
    path = "apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert (await http.ask("POST", path, lease))[0] == 201
    await http.cluster.advance(40)
    assert status(node(http, "other"), "Ready") == "True"
    await http.cluster.advance(11)
    assert status(node(http, "other"), "Ready") == "Unknown"


async def test_a_cordoned_node_is_tainted_and_takes_only_what_names_it(http: Any, pod: Pod) -> None:
    for name in ("node0", "node1"):
        headers = {"Content-Type": "application/merge-patch+json"}
        body = {"spec": {"unschedulable": True}}
        await http.ask("PATCH", f"api/v1/nodes/{name}", body, headers=headers)
    await http.cluster.settle()
    assert taints(http) == {("unschedulable", "NoSchedule")}
    await http.create(pod("a"))
    await http.create(pod("b", nodeName="node0"))
    await http.cluster.settle()
    assert http.pod()["status"]["phase"] == "Pending"
    assert "2 node(s) were unschedulable" in condition(http.pod(), "PodScheduled")["message"]
    assert http.pod("b")["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"container": {"resources": {"limits": {"nvidia.com/gpu": 9}}}},
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            id="gpus",
        ),
        pytest.param({"nodeSelector": {"x": "y"}}, "2 node(s) didn't match Pod's node affinity", id="selector"),
        pytest.param(
            {"container": {"resources": {"requests": {"memory": "1Ti"}}}}, "2 Insufficient memory", id="memory",
        ),
    ],
)  # fmt: skip
async def test_why_a_pod_waits(http: Any, pod: Pod, spec: Any, message: str) -> None:
    await http.create(pod("a", **spec))
    await http.cluster.settle()
    row = condition(http.pod(), "PodScheduled")
    assert (row["status"], row["reason"]) == ("False", "Unschedulable")
    assert message in row["message"]


async def test_a_waiting_pod_gets_the_place_of_one_that_ends(clusters: Any, pod: Pod) -> None:
    http = await clusters(nodes=[NodeSpec("node0", gpus=8)])
    gpus = {"container": {"resources": {"limits": {"nvidia.com/gpu": 8}}}}
    for name in "abc":
        await http.create(pod(name, **gpus))
    await http.cluster.settle()
    phases = [p["status"]["phase"] for p in http.cluster.objects("pods")]
    assert phases == ["Running", "Pending", "Pending"]
    http.cluster.kubelet.exit("a")
    await http.cluster.settle()
    phases = [p["status"]["phase"] for p in http.cluster.objects("pods")]
    assert phases == ["Succeeded", "Running", "Pending"]


async def test_tolerations_and_affinity_let_a_pod_in(clusters: Any, pod: Pod) -> None:
    http = await clusters(nodes=[NodeSpec("node0"), NodeSpec("node1", labels={"zone": "b"})])
    headers = {"Content-Type": "application/merge-patch+json"}
    taint = {"spec": {"taints": [{"key": "hai", "value": "x", "effect": "NoSchedule"}]}}
    await http.ask("PATCH", "api/v1/nodes/node1", taint, headers=headers)
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = {"affinity": {"nodeAffinity": required}}
    await http.create(pod("a", **affinity))
    toleration = {"key": "hai", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
    await http.create(pod("b", tolerations=[toleration], **affinity))
    await http.cluster.settle()
    assert http.pod()["status"]["phase"] == "Pending"
    assert http.pod("b")["spec"]["nodeName"] == "node1"


async def test_only_as_many_as_fit_are_taken_by_a_kubelet(clusters: Any, pod: Pod) -> None:
    """Pods that are bound by `nodeName` are not checked by the scheduler."""
    http = await clusters(nodes=[NodeSpec("node0", gpus=8)])
    for name in "abc":
        gpus = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
        await http.create(pod(name, nodeName="node0", container=gpus))
    await http.cluster.settle()
    rows = [p["status"] for p in http.cluster.objects("pods")]
    assert [r["phase"] for r in rows] == ["Running", "Running", "Failed"]
    assert rows[2]["reason"] == "OutOfnvidia.com/gpu"
    assert "requested: 4, used: 8, capacity: 8" in rows[2]["message"]


async def test_pods_that_are_held_stopped_and_restarted(clusters: Any, pod: Pod) -> None:
    http = await clusters(kubelet=lambda api: InstantKubelet(api, starts=False, stop_seconds=None))
    await http.create(pod("a", restartPolicy="Always"))
    await http.cluster.settle()
    assert http.pod()["status"]["phase"] == "Pending"
    runtime = http.cluster.kubelet
    runtime.run("a")
    runtime.exit("a", 1, reason="OOMKilled")
    await http.cluster.advance(0)
    runtime.exit("a", 1)
    row = http.pod()["status"]["containerStatuses"][0]
    assert row["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    await http.cluster.advance(10)
    row = http.pod()["status"]["containerStatuses"][0]
    assert (row["restartCount"], "running" in row["state"]) == (2, True)
    await http.delete("a", gracePeriodSeconds=5)
    await http.cluster.advance(4)
    assert http.pod() is not None
    await http.cluster.advance(2)
    assert http.pod() is None


async def test_a_grace_may_be_shortened(clusters: Any, pod: Pod) -> None:
    http = await clusters(kubelet=lambda api: InstantKubelet(api, stop_seconds=None))
    await http.create(pod("a"))
    await http.cluster.settle()
    await http.delete("a", gracePeriodSeconds=600)
    await http.delete("a", gracePeriodSeconds=900)
    assert http.pod()["metadata"]["deletionGracePeriodSeconds"] == 600
    await http.delete("a", gracePeriodSeconds=5)
    await http.cluster.advance(6)
    assert http.pod() is None
