"""Large clusters. The fake cluster must be fast enough for measurements of the platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hai_backend.testing.kube import NodeSpec

PODS = 2000  # 10 000 take 5 s on a free core
Pod = Callable[..., dict[str, Any]]


async def test_thousands_of_pods_on_two_thousand_nodes_come_and_go(clusters: Any, pod: Pod) -> None:
    """The test calls the API without HTTP, to save time."""
    http = await clusters(nodes=[NodeSpec(f"node{i:04}") for i in range(2000)])
    cluster = http.cluster
    pods = cluster.api.resources["pods"]
    before = cluster.counts()
    for i in range(PODS):
        spec = pod(f"p{i:05}", labels={"gang": str(i % 10)})
        spec["spec"]["nodeName"] = f"node{i % 2000:04}"
        cluster.api.writes.create(pods, "default", spec)
    await cluster.settle()
    code, found = await http.ask("GET", "api/v1/pods?fieldSelector=status.phase%3DRunning")
    assert (code, len(found["items"])) == (200, PODS)
    code, found = await http.ask("DELETE", "api/v1/namespaces/default/pods?labelSelector=gang%3D3")
    assert (code, len(found["items"])) == (200, PODS // 10)
    await cluster.settle()
    assert cluster.counts()["pods"] == PODS - PODS // 10
    await http.ask("DELETE", "api/v1/namespaces/default/pods")
    await cluster.settle()
    assert cluster.counts() == before
    history = cluster.api.store.histories[pods]
    assert history.end - history.first <= 10_000  # the size of the window
