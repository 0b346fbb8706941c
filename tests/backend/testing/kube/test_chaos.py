"""A seed determines the faults of a cluster, which recovers afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from hai_backend.testing.kube import Chaos

Pod = Callable[..., dict[str, Any]]


async def story(clusters: Any, pod: Pod, seed: int) -> list[tuple[float, str]]:
    http = await clusters(nodes=4)
    begin = http.cluster.timers.now()
    for name in "abcd":
        await http.create(pod(name, restartPolicy="Always"))
    with Chaos(http.cluster, seed) as chaos:
        await http.cluster.advance(600)
    await http.cluster.advance(600)
    nodes = [n for n in http.cluster.objects("nodes") if n["spec"].get("taints")]
    assert nodes == []
    await http.ask("DELETE", "api/v1/namespaces/default/pods")
    await http.cluster.settle()
    assert http.cluster.objects("pods") == []
    assert http.cluster.kubelet.pods == {}
    return [(when - begin, what) for when, what in chaos.story]


async def test_the_same_seed_tells_the_same_story(clusters: Any, pod: Pod) -> None:
    first, again, other = [await story(clusters, pod, seed) for seed in (1, 1, 2)]
    assert first == again != other
    assert len(first) > 20


@pytest.mark.parametrize("seed", range(20))
async def test_objects_are_consistent_whatever_happens(clusters: Any, pod: Pod, seed: int) -> None:
    """A client that asks again until it is answered: each object is there once, and each is gone at the end."""
    http = await clusters(nodes=3, manual=False)
    http.cluster.faults.seed(seed, rate=0.3)

    async def apply_when_stored(
        method: str, path: str, body: Any = None, good: tuple[int, ...] = ()
    ) -> None:
        for _ in range(100):
            try:
                code, answer = await http.ask(method, path, body)
            except aiohttp.ClientError:
                continue
            if code in (200, 201) or (code in good and "injected" not in str(answer)):
                return
        raise AssertionError(f"never answered: {method} {path}")

    path = "api/v1/namespaces/default/pods"
    for name in "abc":
        await apply_when_stored("POST", path, pod(name), (409,))
    await http.cluster.settle()
    assert [p["status"]["phase"] for p in http.cluster.objects("pods")] == ["Running"] * 3
    for name in "abc":
        await apply_when_stored("DELETE", f"{path}/{name}", None, (404,))
    await http.cluster.settle()
    assert http.cluster.objects("pods") == []
