"""A cluster within this process, with an API server, controllers, a scheduler and kubelets.

    async with FakeCluster(nodes=4, clock=ManualClock()) as cluster:
        client = …(cluster.url)
        await cluster.advance(60)

All components run in the event loop of the test. A client that blocks needs a thread (see `threaded`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import yaml

from hai_backend.testing import ManualClock
from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.control.events import EventRecorder
from hai_backend.testing.kube.control.garbage_collector import GarbageCollector
from hai_backend.testing.kube.control.namespaces import NamespaceController
from hai_backend.testing.kube.control.node_usage import NodeUsage
from hai_backend.testing.kube.control.nodes import NodeController
from hai_backend.testing.kube.control.pods import Pods
from hai_backend.testing.kube.control.scheduler import Scheduler
from hai_backend.testing.kube.control.taint_eviction import TaintEvictionController
from hai_backend.testing.kube.faults.requests import Faults
from hai_backend.testing.kube.faults.watches import WatchFaults
from hai_backend.testing.kube.kubelet.instant import InstantKubelet
from hai_backend.testing.kube.kubelet.nodes import FakeNodes, NodeSpec
from hai_backend.testing.kube.kubelet.runtime import Runtime
from hai_backend.testing.kube.request_info import RequestInfo
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.server.handler import Reply, RequestHandler
from hai_backend.testing.kube.server.http import Server
from hai_backend.testing.kube.server.request_log import RequestLog
from hai_backend.testing.kube.timers import ManualTimers, RealTimers, Timers


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig for a cluster at `url`, with a user that has no real credentials."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "tester", "user": {"token": "fake"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "tester"}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(config))
    return path


T = TypeVar("T")
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class FakeCluster:
    """A fake cluster, used as an async context manager.

    `kubelet` creates the kubelet that runs the pods of all nodes. `window` is the number of changes of each kind that
    are kept for watches. `lag` is the number of changes by which a watch may fall behind, while its client does not
    read, before it ends. `node_grace` is the number of seconds without a heartbeat after which a node is not ready.
    `verbose` enables Events about successes.
    """

    def __init__(
        self,
        nodes: int | Sequence[NodeSpec] = 1,
        clock: ManualClock | None = None,
        kubelet: Callable[[Api], Runtime] = InstantKubelet,
        custom: Sequence[Resource] = (),
        *,
        window: int = 10_000,
        lag: int = 1_000,
        node_grace: float = 50.0,
        verbose: bool = False,
        timers: Timers | None = None,
    ) -> None:
        self.timers = timers or (RealTimers() if clock is None else ManualTimers(clock))
        self.api = Api(self.timers, tuple(custom), window)
        recorder, usage = EventRecorder(self.api), NodeUsage(self.api)
        self.kubelet = kubelet(self.api)
        self.nodes = FakeNodes(self.api, usage, recorder, self.kubelet)
        GarbageCollector(self.api)
        NamespaceController(self.api)
        self.scheduler = Scheduler(self.api, usage, recorder, verbose)
        controller = NodeController(self.api, usage, recorder, self.nodes.is_alive, node_grace)
        self.nodes.on_heartbeat = controller.heartbeat
        self.nodes.on_silence = controller.silence_started
        TaintEvictionController(self.api, usage)
        self._handler = RequestHandler(self.api, Pods(self.api), self.kubelet)
        self.server = Server(self.api, self._handler, lag)
        self._nodes = (
            nodes if not isinstance(nodes, int) else [NodeSpec(f"node{i}") for i in range(nodes)]
        )

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def faults(self) -> Faults:
        """Faults of requests."""
        return self.server.faults

    @property
    def watch_faults(self) -> WatchFaults:
        """Faults of watch streams."""
        return self.server.watch_faults

    @property
    def request_log(self) -> RequestLog:
        """The requests so far."""
        return self.server.request_log

    def counts(self) -> dict[str, int]:
        """Return the number of objects of each kind, and of open watches, to find leaks."""
        store = self.api.store
        counts = {r.plural: store.count(r) for r in self.api.resources.all if store.count(r)}
        return counts | {"watches": len(self.server.watches)}

    async def __aenter__(self) -> FakeCluster:
        for name in _NAMESPACES:
            self.api.writes.create(
                self.api.resources["namespaces"], "", {"metadata": {"name": name}}
            )
        self.add_nodes(self._nodes)
        await self.server.start()
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()
        await self.kubelet.close()
        if failures := self.api.store.failures:
            raise RuntimeError(f"{len(failures)} failures within the fake cluster") from failures[0]

    def add_nodes(self, nodes: Iterable[NodeSpec]) -> None:
        for node in nodes:
            self.nodes.register(node)

    def objects(self, plural: str, namespace: str = "") -> list[Body]:
        """Return the current bodies, without kind and apiVersion. They must not be changed."""
        stored = self.api.store.sorted_objects(self.api.resources[plural])
        return [s.body for s in stored if not namespace or s.namespace == namespace]

    def perform(self, info: RequestInfo, form: str, body: bytes) -> Reply:
        """Return the server's answer to a request, without a socket. Raises ApiError."""
        return self._handler.perform(info, form, body)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this cluster."""
        return write_kubeconfig(path, self.url)

    async def settle(self) -> None:
        """Wait until the controllers have handled all changes."""
        idle_turns = 0
        while idle_turns < 2:
            await asyncio.sleep(0)
            is_idle = self.api.store.idle and self.scheduler.idle
            idle_turns = idle_turns + 1 if is_idle else 0

    async def until(self, condition: Callable[[], T], timeout: float = 20.0) -> T:
        """Call `condition` after each write until it returns a true value, and return that. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not (result := condition()):
                await self.api.store.next_write()
        return result

    async def advance(self, seconds: float) -> None:
        """Advance the manual clock."""
        if not isinstance(self.timers, ManualTimers):
            raise TypeError("this cluster runs by the machine's time; give it clock=ManualClock()")
        await self.timers.advance(seconds, self.settle)

    def expire(self, *plurals: str) -> None:
        """Let old resource versions and continue tokens expire. Requests with them then get 410."""
        self.api.store.expire(*(self.api.resources[p] for p in plurals))
        self._handler.lists.expire()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Stop the API server and all its connections while the context lasts."""
        await self.server.stop()
        yield
        await self.server.start()
