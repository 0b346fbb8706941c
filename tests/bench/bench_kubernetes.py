"""Times and costs in a large cluster: create a gang of 1 000 pods, suspend it, watch 10 000 pods and 2 000 nodes.

The cluster is the fake one, in a separate process. The launcher uses HTTP and the official client.

    python -m tests.bench.bench_kubernetes NODES PODS HOME      # the separate process; reads commands from stdin
"""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import structlog

from hai_backend.domain.priority import Priority
from hai_backend.launch.base import NodeList, RankKey, RankLaunch, RankList
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.official_client import OfficialTransport
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.manifests.objects import objects
from hai_backend.launch.request import RunRequest
from hai_backend.lifecycle import events as ev
from hai_backend.store.connect import open_store
from hai_backend.testing.kube import FakeCluster, InstantKubelet, NodeSpec
from tests.bench.figures import Figure
from tests.support.builders import a_spec
from tests.support.simulation.server import SETTINGS, SimulatedServer

GANG, NODES, PODS, TOUCHED = 1_000, 2_000, 10_000, 5_000
RUN = RunRequest(7, 1, user="ada", uid=1000)


def figures() -> Iterator[Figure]:
    """Yield the figures of this module."""
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet)
    with cluster(NODES, PODS) as there:  # first: freed memory would be used again
        yield from asyncio.run(watched(there))
    with cluster(GANG, 0) as there:
        yield Figure("kubernetes: 1 000-pod gang created", asyncio.run(gang(there)), "s", 30.0)
    with cluster(GANG, 0) as there:
        taken = asyncio.run(suspended(there))
        yield Figure("kubernetes: suspend of 1 000 ranks to nodes free", taken, "s", 5.0)


class There:
    """A cluster in another process."""

    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        self._process = process
        self.home = home

    def transport(self) -> OfficialTransport:
        return OfficialTransport(str(self.home / "kubeconfig"))

    def tell(self, command: str) -> str:
        """Let the process execute a command, and return its answer, one line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    async def until(self, count: int) -> None:
        """Wait until `count` pods run."""
        while int(await asyncio.to_thread(self.tell, "running")) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # there is no event from the other process


@contextmanager
def cluster(nodes: int, pods: int) -> Iterator[There]:
    with tempfile.TemporaryDirectory(prefix="hai-") as directory:
        command = [sys.executable, "-m", "tests.bench.bench_kubernetes"]
        process = subprocess.Popen(
            [*command, str(nodes), str(pods), directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        there = There(process, Path(directory))
        try:
            there.tell("running")
            yield there
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


async def gang(there: There) -> float:
    """Return the seconds from the call of `start` until all pods run."""
    launcher = KubernetesLauncher(there.transport(), SETTINGS, Options())
    events = launcher.events()
    assert isinstance(await anext(events), NodeList)
    assert isinstance(await anext(events), RankList)
    ranks = [RankLaunch(RankKey(7, 1, i), f"node{i}", "t" * 64, run=RUN) for i in range(GANG)]
    began = time.perf_counter()
    await launcher.start(ranks)
    await there.until(GANG)
    taken = time.perf_counter() - began
    await launcher.close()
    return taken


async def suspended(there: There) -> float:
    """Return the seconds from the suspend request until the run has ended in the database. The grace period is 0."""
    store = open_store(f"sqlite:///{there.home / 'hai.db'}")
    await store.open()
    server = SimulatedServer(store, there.transport(), 1)
    await server.start()
    await server.launching.listed.wait()
    task = await server.task_manager.submit("ada", a_spec(nodes=GANG), "request")
    nodes = tuple(f"node{i}" for i in range(GANG))
    await server.task_manager.apply(task.id, ev.RunPlaced(nodes, Priority.NORMAL, "all"))
    await there.until(GANG)
    for i in range(GANG):
        await server.task_manager.apply(task.id, ev.RankAttached(1, i, "10.0.0.1", 4000))
    began = time.perf_counter()
    await server.task_manager.suspend(task.id, "ada", hold=True, delay=0.0)
    await asyncio.gather(*agents_leave(server, there, task.id))
    version = server.task_manager.feed.version
    while not server.task_manager.unfinished()[task.id].waiting:
        version = await server.task_manager.feed.beyond(version)
    taken = time.perf_counter() - began
    await server.die()
    await store.close()
    return taken


def agents_leave(
    server: SimulatedServer, there: There, task_id: int
) -> Iterator[Awaitable[object]]:
    """Yield the reports that all agents have saved and exited, and the end of their containers."""
    yield server.task_manager.apply(task_id, ev.Yielded(1, 0))
    for i in range(GANG):
        yield server.task_manager.apply(task_id, ev.ProgramExited(1, i, 143, "", True))
    yield asyncio.to_thread(there.tell, "exit")


async def watched(there: There) -> list[Figure]:
    """Return the memory of a watching launcher, and the CPU time of its lists and events."""
    process = psutil.Process()
    await asyncio.to_thread(there.tell, "running")  # loads modules, starts threads
    before, cpu = memory(process), time.process_time()
    launcher = KubernetesLauncher(there.transport(), SETTINGS, Options(relist_seconds=3_600.0))
    events = launcher.events()
    seen = await anext(events)
    listed = await anext(events)
    assert isinstance(seen, NodeList)
    assert isinstance(listed, RankList)
    assert (len(seen.nodes), len(listed.keys)) == (NODES, PODS)
    first = time.process_time() - cpu
    held = memory(process) - before
    beats = await cost(there, "beat", TOUCHED)
    touched = await cost(there, "touch", TOUCHED)
    grown = memory(process) - before - held
    await launcher.close()
    return [
        Figure("kubernetes: listing 10 000 pods and 2 000 nodes, CPU", first, "s"),
        Figure("kubernetes: memory for 10 000 pods and 2 000 nodes", held / 2**20, "MiB"),
        Figure("kubernetes: memory more after 10 000 events", grown / 2**20, "MiB", 16.0),
        Figure("kubernetes: a heartbeat of a node, CPU", beats * 1e3, "ms", 1.0),
        Figure("kubernetes: an event of a pod, CPU", touched * 1e3, "ms", 1.0),
    ]


def memory(process: psutil.Process) -> int:
    gc.collect()
    return int(process.memory_info().rss)


async def cost(there: There, command: str, count: int) -> float:
    """Return this process's CPU seconds per change, for `count` changes in the cluster."""
    before = time.process_time()
    await asyncio.to_thread(there.tell, f"{command} {count}")
    await asyncio.sleep(2.0)
    return (time.process_time() - before) / count


# The process of the cluster.


class Played:
    """The cluster, with a method for each command."""

    def __init__(self, made: FakeCluster) -> None:
        self._cluster = made

    def fill(self, pods: int, nodes: int) -> None:
        """Create this number of pods, as runs of up to 500 ranks."""
        for start in range(0, pods, 500):
            run = RunRequest(start + 1, 1, user="ada", uid=1000)
            ranks = [
                RankLaunch(
                    RankKey(start + 1, 1, i), f"node{(start + i) % nodes}", "t" * 64, run=run
                )
                for i in range(min(500, pods - start))
            ]
            api = self._cluster.api
            for manifest in objects(run, ranks, SETTINGS, "00000000-0000"):
                if manifest["kind"] == "Pod":
                    del manifest["metadata"]["ownerReferences"]  # the owner does not exist
                    api.writes.create(api.resources["pods"], "default", manifest)

    def running(self, count: int) -> int:
        """Return how many pods run."""
        pods = self._cluster.objects("pods", "default")
        return sum(pod["status"]["phase"] == "Running" for pod in pods)

    def exit(self, count: int) -> int:
        """End all containers."""
        kubelet = self._cluster.kubelet
        assert isinstance(kubelet, InstantKubelet)
        for local in list(kubelet.pods.values()):
            kubelet.exit(local.pod.name)
        return 0

    def beat(self, count: int) -> int:
        return self._change("nodes", count)

    def touch(self, count: int) -> int:
        return self._change("pods", count)

    def _change(self, plural: str, count: int) -> int:
        """Write `count` statuses in which nothing relevant changes."""
        api = self._cluster.api
        found = api.store.sorted_objects(api.resources[plural])
        for i in range(count):
            now = api.latest(found[i % len(found)])
            assert now is not None
            api.writes.set_status(now, {**now.body["status"], "note": str(i)})
        return count


async def play(nodes: int, pods: int, home: Path) -> None:
    """Run the cluster. Execute a command for each line of stdin, and print its result."""
    specs = [NodeSpec(f"node{i}") for i in range(nodes)]
    async with FakeCluster(specs, window=50_000, lag=50_000) as made:
        made.kubeconfig(home / "kubeconfig")
        played = Played(made)
        played.fill(pods, nodes)
        await made.settle()
        verbs: dict[str, Callable[[int], int]] = {
            name: getattr(played, name) for name in ("running", "exit", "beat", "touch")
        }
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            print(verbs[words[0]](int((*words, "0")[1])), flush=True)
            await made.settle()


if __name__ == "__main__":
    asyncio.run(play(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
