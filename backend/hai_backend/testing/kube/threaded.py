"""A fake cluster in a separate thread, for tests and clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.cluster import FakeCluster

T = TypeVar("T")


class ThreadedCluster:
    """Access to a cluster from another thread."""

    def __init__(self, cluster: FakeCluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self._loop = loop

    @property
    def url(self) -> str:
        return self.cluster.url

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the cluster's loop, such as `cluster.settle()`."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def call(self, function: Callable[[FakeCluster], T]) -> T:
        """Call a function with the cluster, in its loop."""

        async def call_in_loop() -> T:
            return function(self.cluster)

        return self.run(call_in_loop())

    def objects(self, plural: str, namespace: str = "") -> list[Body]:
        return self.call(lambda cluster: cluster.objects(plural, namespace))

    def kubeconfig(self, path: Path) -> Path:
        return self.cluster.kubeconfig(path)


@contextmanager
def threaded_cluster(make: Callable[[], FakeCluster]) -> Iterator[ThreadedCluster]:
    """Run the cluster that `make` creates in a thread, while the context lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-cluster", daemon=True)
    thread.start()
    cluster = make()
    threaded = ThreadedCluster(cluster, loop)
    try:
        threaded.run(cluster.__aenter__())
        yield threaded
    finally:
        threaded.run(cluster.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
