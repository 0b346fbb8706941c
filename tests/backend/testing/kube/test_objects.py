"""Rules for objects that are not compared with a real cluster: budgets, owners, ports, priorities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hai_backend.testing.kube import custom

Pod = Callable[..., dict[str, Any]]
NAMESPACE = "api/v1/namespaces/default"


async def test_a_custom_kind(clusters: Any) -> None:
    http = await clusters(custom=[custom("hai.dev", "v1", "runs", "Run")])
    path = "apis/hai.dev/v1/namespaces/default/runs"
    code, run = await http.ask("POST", path, {"metadata": {"name": "r"}, "spec": {"ranks": 2}})
    assert (code, run["kind"], run["apiVersion"]) == (201, "Run", "hai.dev/v1")
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    assert (await http.ask("PATCH", f"{path}/r", {}, headers=headers))[0] == 415
    _, groups = await http.ask("GET", "apis")
    assert "hai.dev" in {g["name"] for g in groups["groups"]}
    run["metadata"].pop("resourceVersion")
    code, status = await http.ask("PUT", f"{path}/r", run)
    assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


async def test_a_run_takes_everything_that_it_owns_along(clusters: Any, pod: Pod) -> None:
    http = await clusters(nodes=2, custom=[custom("hai.dev", "v1", "runs", "Run")])
    before = http.cluster.counts()
    path = "apis/hai.dev/v1/namespaces/default/runs"
    _, run = await http.ask("POST", path, {"metadata": {"name": "r"}})
    owner = {"apiVersion": "hai.dev/v1", "kind": "Run", "name": "r", "uid": run["metadata"]["uid"]}
    for i in range(5):
        body = pod(f"p{i}")
        body["metadata"]["ownerReferences"] = [owner]
        await http.create(body)
        await http.create({"metadata": body["metadata"] | {"name": f"s{i}"}}, "secrets")
    await http.cluster.settle()
    await http.ask("DELETE", f"{path}/r")
    await http.cluster.settle()
    assert http.cluster.counts() == before


async def test_in_the_foreground_an_owner_outlives_what_it_owns(http: Any) -> None:
    owner = await http.create({"metadata": {"name": "owner"}}, "configmaps")
    row = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    owned = {
        "ownerReferences": [row | {"blockOwnerDeletion": True}],
        "finalizers": ["hai.dev/hold"],
    }
    await http.create({"metadata": {"name": "owned"} | owned}, "configmaps")
    await http.delete("owner", "configmaps", propagationPolicy="Foreground")
    await http.cluster.settle()
    found = {n: http.cluster.api.get("configmaps", "default", n) for n in ("owner", "owned")}
    assert all(o is not None and o.deleting for o in found.values())
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"metadata": {"finalizers": None}}
    await http.ask("PATCH", f"{NAMESPACE}/configmaps/owned", body, headers=headers)
    await http.cluster.settle()
    assert http.cluster.api.get("configmaps", "default", "owner") is None


async def test_of_two_owners_one_may_go(http: Any, pod: Pod) -> None:
    owners = [await http.create({"metadata": {"name": n}}, "configmaps") for n in "ab"]
    rows = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
        }
        for o in owners
    ]
    body = pod("p")
    body["metadata"]["ownerReferences"] = rows
    await http.create(body)
    await http.delete("a", "configmaps")
    await http.cluster.settle()
    (left,) = http.cluster.objects("pods")
    assert left["metadata"]["ownerReferences"] == rows[1:]


async def test_priorities_come_from_classes(http: Any, pod: Pod) -> None:
    path = "apis/scheduling.k8s.io/v1/priorityclasses"
    assert (await http.ask("POST", path, {"metadata": {"name": "high"}, "value": 50}))[0] == 201
    made = await http.create(pod("a", priorityClassName="high"))
    assert made["spec"]["priority"] == 50
    code, status = await http.ask(
        "POST", path, {"metadata": {"name": "system-x"}, "value": 2_000_000_000}
    )
    assert (code, len(status["details"]["causes"])) == (422, 2)


async def test_a_port_of_the_nodes_is_given_once(http: Any) -> None:
    def service(name: str, **port: int) -> dict[str, Any]:
        spec = {"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 80, **port}]}
        return {"metadata": {"name": name}, "spec": spec}

    first = await http.create(service("a"), "services")
    number = first["spec"]["ports"][0]["nodePort"]
    assert 30000 <= number < 32768
    code, status = await http.ask("POST", f"{NAMESPACE}/services", service("b", nodePort=number))
    assert (code, status["details"]["causes"][0]["field"]) == (422, "spec.ports[0].nodePort")
    again = await http.create(service("b"), "services")
    assert again["spec"]["ports"][0]["nodePort"] != number


@pytest.mark.parametrize(
    ("budget", "healthy", "goes"),
    [
        pytest.param({"minAvailable": 1}, 2, True, id="one may go"),
        pytest.param({"minAvailable": 2}, 2, False, id="none may go"),
        pytest.param({"minAvailable": "50%"}, 2, True, id="half"),
        pytest.param({"maxUnavailable": 0}, 2, False, id="none at all"),
        pytest.param({"maxUnavailable": 1}, 3, True, id="one of three"),
    ],
)
async def test_a_budget_lets_so_many_be_evicted(
    http: Any, pod: Pod, budget: dict[str, Any], healthy: int, goes: bool
) -> None:
    for i in range(healthy):
        await http.create(pod(f"p{i}", labels={"a": "b"}))
    await http.cluster.settle()
    spec = {"selector": {"matchLabels": {"a": "b"}}, **budget}
    path = "apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await http.ask("POST", path, {"metadata": {"name": "b"}, "spec": spec})
    evict = f"{NAMESPACE}/pods/p0/eviction"
    code, _ = await http.ask("POST", evict, {"metadata": {"name": "p0"}})
    assert code == (201 if goes else 429)


async def test_an_unchangeable_secret(http: Any) -> None:
    await http.create(
        {"metadata": {"name": "s"}, "immutable": True, "stringData": {"a": "1"}}, "secrets"
    )
    headers = {"Content-Type": "application/merge-patch+json"}
    path = f"{NAMESPACE}/secrets/s"
    code, status = await http.ask("PATCH", path, {"stringData": {"a": "2"}}, headers=headers)
    assert (code, status["reason"]) == (422, "Invalid")
    code, _ = await http.ask("PATCH", path, {"metadata": {"labels": {"x": "y"}}}, headers=headers)
    assert code == 200


async def test_a_namespace_that_is_going_takes_nothing_new(http: Any, pod: Pod) -> None:
    await http.ask("POST", "api/v1/namespaces", {"metadata": {"name": "n"}})
    await http.cluster.settle()
    held = pod("a")
    held["metadata"]["finalizers"] = ["hai.dev/hold"]
    await http.ask("POST", "api/v1/namespaces/n/pods", held)
    _, left = await http.ask("DELETE", "api/v1/namespaces/n")
    assert left["status"]["phase"] == "Terminating"
    await http.cluster.settle()
    code, status = await http.ask("POST", "api/v1/namespaces/n/pods", pod("b"))
    assert (code, status["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    headers = {"Content-Type": "application/merge-patch+json"}
    await http.ask(
        "PATCH", "api/v1/namespaces/n/pods/a", {"metadata": {"finalizers": None}}, headers=headers
    )
    await http.cluster.settle()
    assert (await http.ask("GET", "api/v1/namespaces/n"))[0] == 404


async def test_what_a_pod_gets_said_before_it_is_deleted_stays_with_it(http: Any, pod: Pod) -> None:
    """The condition PreemptionByScheduler is set before the pod is deleted. Reports of the kubelet keep it."""
    await http.create(pod("a"))
    await http.cluster.settle()
    row = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    path = f"{NAMESPACE}/pods/a"
    await http.ask("PATCH", f"{path}/status", {"status": {"conditions": [row]}}, headers=headers)
    answer = await http.watch(resourceVersion=http.cluster.api.store.revision)
    await http.delete("a")
    await http.cluster.settle()
    http.cluster.watch_faults.end()
    text = (await answer.content.read()).decode().splitlines()
    # deletion requested, seen by the kubelet, ended, grace period over, deleted
    assert len(text) == 5
    assert all("PreemptionByScheduler" in line for line in text)
