"""A fake cluster in virtual time, without sockets, and launchers that use it. Simulated hours take milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from hai_backend.launch.base import LauncherEvent, NodeList, RankKey, RankLaunch, RankList
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest
from hai_backend.testing.kube import FakeCluster, InstantKubelet, NodeSpec
from tests.support.direct_transport import DirectTransport
from tests.support.virtual_time import LoopTimers, run_virtually

SETTINGS = ClusterSettings(
    namespace="default",
    instance="mine",
    server_addresses=("server:1",),
    agent_path="/opt/agent",
    images={"default": "any/image:1"},
    default_uid=1000,
    fence_after=100.0,
)
OPTIONS = Options(relist_seconds=60.0, lost_after=10.0)
OURS = ("pods", "configmaps", "secrets", "services", "ingresses", "networkpolicies")


class Watched:
    """A launcher and its events."""

    def __init__(self, cluster: FakeCluster, options: Options, settings: ClusterSettings) -> None:
        self.launcher = KubernetesLauncher(DirectTransport(cluster), settings, options, Random(1))
        self._events = self.launcher.events()

    async def begin(self) -> RankList:
        assert isinstance(await anext(self._events), NodeList)
        listed = await anext(self._events)
        assert isinstance(listed, RankList)
        return listed

    async def next(self, of: type[LauncherEvent] | None = None) -> LauncherEvent:
        """Return the next event, or the next event of a type. NodeList is skipped unless `of` is NodeList."""
        async with asyncio.timeout(1_000):
            while True:
                event = await anext(self._events)
                if isinstance(event, of) if of else not isinstance(event, NodeList):
                    return event


class There:
    """A cluster and the launchers that use it. Each new launcher simulates a restarted server."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.kubelet = cluster.kubelet
        self._made: list[Watched] = []

    async def watch(
        self, options: Options = OPTIONS, settings: ClusterSettings = SETTINGS
    ) -> Watched:
        made = Watched(self.cluster, options, settings)
        self._made.append(made)
        await made.begin()
        return made

    def pods(self) -> list[str]:
        return sorted(p["metadata"]["name"] for p in self.cluster.objects("pods", "default"))

    def left(self) -> list[str]:
        return [
            body["metadata"]["name"]
            for plural in OURS
            for body in self.cluster.objects(plural, "default")
            if body["metadata"]["name"].startswith("hai-")
        ]

    async def until(self, so: Callable[[], bool], seconds: float = 1_000.0) -> None:
        async with asyncio.timeout(seconds):
            while not so():  # noqa: ASYNC110 - the time is virtual
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        for watched in self._made:
            await watched.launcher.close()


@asynccontextmanager
async def there(nodes: int = 2, starts: bool = True) -> AsyncIterator[There]:
    specs = [NodeSpec(f"n{i}") for i in range(nodes)]
    async with FakeCluster(
        specs, kubelet=lambda api: InstantKubelet(api, starts), timers=LoopTimers()
    ) as cluster:
        made = There(cluster)
        try:
            yield made
        finally:
            await made.close()


def rank(index: int, node: str = "n0", task: int = 7) -> RankLaunch:
    run = RunRequest(task, 1, user="ada", uid=1000)
    return RankLaunch(RankKey(task, 1, index), node, "token", run=run)


def story(work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Return a test that runs `work` in virtual time."""

    async def told() -> None:
        await work()

    def test() -> None:
        run_virtually(told())

    test.__name__, test.__doc__ = work.__name__, work.__doc__  # type: ignore[attr-defined]
    return test


def force(it: There, name: str) -> None:
    """Delete a pod as `kubectl delete pod --force --grace-period=0` does."""
    api = it.cluster.api
    pod = api.get("pods", "default", name)
    assert pod is not None
    api.deletes.delete_if_current(pod, grace=0)
