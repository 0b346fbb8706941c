"""Clusters with the clock of the test, and a plain HTTP client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from hai_backend.testing import ManualClock
from hai_backend.testing.kube import FakeCluster

Body = dict[str, Any]


@dataclass
class Http:
    """Sends requests, and returns the code and the body of responses."""

    session: aiohttp.ClientSession
    cluster: FakeCluster

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        url = f"{self.cluster.url}/{path}"
        async with self.session.request(method, url, json=body, **more) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def create(self, body: Body, plural: str = "pods") -> Body:
        code, made = await self.ask("POST", f"api/v1/namespaces/default/{plural}", body)
        assert code == 201, made
        return dict(made)

    def pod(self, name: str = "a") -> Body | None:
        """Return the current body of a pod; None if it does not exist."""
        found = self.cluster.api.get("pods", "default", name)
        return None if found is None else found.body

    async def delete(self, name: str, plural: str = "pods", **options: Any) -> tuple[int, Any]:
        return await self.ask(
            "DELETE", f"api/v1/namespaces/default/{plural}/{name}", options or None
        )

    async def watch(self, plural: str = "pods", **query: Any) -> aiohttp.ClientResponse:
        url = f"{self.cluster.url}/api/v1/{plural}"
        query = {"watch": "1", **{k: str(v) for k, v in query.items()}}
        return await self.session.get(url, params=query)


class Clusters:
    """Creates clusters, and stops them at the end of the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._open: list[Http] = []

    async def __call__(self, manual: bool = True, **options: Any) -> Http:
        clock = self.clock if manual else None
        cluster = await FakeCluster(clock=clock, **options).__aenter__()
        http = Http(aiohttp.ClientSession(), cluster)
        self._open.append(http)
        return http

    async def close(self) -> None:
        for http in self._open:
            await http.session.close()
            await http.cluster.__aexit__()
        await asyncio.sleep(0)


@pytest.fixture
async def clusters() -> AsyncIterator[Clusters]:
    made = Clusters()
    yield made
    await made.close()


@pytest.fixture
async def http(clusters: Clusters) -> Http:
    """A cluster of two nodes whose pods run by the word of the test."""
    return await clusters(nodes=2)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Any]:
    """Real processes take real time, and nobody says when one that no object stands for is gone."""

    async def wait(so: Callable[[], object]) -> Any:
        async with asyncio.timeout(20):
            while not (found := so()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return found

    return wait


@pytest.fixture
def pod() -> Callable[..., Body]:
    """A pod of one container."""

    def make(name: str = "a", *command: str, labels: Body | None = None, **spec: Any) -> Body:
        container = {"name": "main", "image": "x", "command": list(command) or ["true"]}
        container |= spec.pop("container", {})
        body = {"restartPolicy": "Never", "containers": [container], **spec}
        return {"metadata": {"name": name, "labels": labels or {}}, "spec": body}

    return make
