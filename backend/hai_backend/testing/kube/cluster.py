"""A whole cluster in this process: API server, controllers, scheduler and kubelets.

    async with FakeCluster(nodes=4, clock=ManualClock()) as cluster:
        client = …(cluster.url)
        await cluster.advance(60)

Everything runs in the loop of the test; a client that blocks belongs into a thread (see `threaded`).
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
    """One cluster, one user without secrets, one context."""
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
    """`kubelet` makes the runtime (InstantKubelet unless said otherwise). `verbose`: Events of all that goes well too.

    `window`: changes that are kept for watches, of each kind. `lag`: how many of them a reader that stands still may
    miss before its stream is ended. `node_grace`: seconds of silence after which a node is not ready.
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
        controller = NodeController(self.api, usage, recorder, self.nodes.alive, node_grace)
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
        """Of requests."""
        return self.server.faults

    @property
    def watch_faults(self) -> WatchFaults:
        """Of streams."""
        return self.server.watch_faults

    @property
    def request_log(self) -> RequestLog:
        """Who asked what."""
        return self.server.request_log

    def counts(self) -> dict[str, int]:
        """How many objects there are of each kind, and how many watches are open: what may leak."""
        store = self.api.store
        found = {r.plural: store.count(r) for r in self.api.resources.all if store.count(r)}
        return found | {"watches": len(self.server.watches)}

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
        """Bodies as they are now, without kind and apiVersion. Not to be changed."""
        found = self.api.store.sorted_objects(self.api.resources[plural])
        return [s.body for s in found if not namespace or s.namespace == namespace]

    def perform(self, call: RequestInfo, form: str, body: bytes) -> Reply:
        """What the server would answer, without a socket. Raises ApiError."""
        return self._handler.perform(call, form, body)

    def kubeconfig(self, path: Path) -> Path:
        """Write one for kubectl and other clients."""
        return write_kubeconfig(path, self.url)

    async def settle(self) -> None:
        """Until the controllers have heard of everything and done what follows."""
        calm = 0
        while calm < 2:
            await asyncio.sleep(0)
            calm = calm + 1 if self.api.store.idle and self.scheduler.idle else 0

    async def until(self, so: Callable[[], T], seconds: float = 20.0) -> T:
        """Wait for objects to be so; asked again after each write. Raises TimeoutError after real seconds."""
        async with asyncio.timeout(seconds):
            while not (found := so()):
                await self.api.store.next_write()
        return found

    async def advance(self, seconds: float) -> None:
        """Let time pass on the test's clock."""
        if not isinstance(self.timers, ManualTimers):
            raise TypeError("this cluster runs by the machine's time; give it clock=ManualClock()")
        await self.timers.advance(seconds, self.settle)

    def expire(self, *plurals: str) -> None:
        """Watches and pages from the past get 410."""
        self.api.store.expire(*(self.api.resources[p] for p in plurals))
        self._handler.lists.expire()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """The API server is gone for a while, and with it every connection."""
        await self.server.stop()
        yield
        await self.server.start()
