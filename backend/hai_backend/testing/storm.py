"""The main job in a cluster where everything fails: by one seed, in virtual time, checking what must hold all along.

A model of the rest of the world around the real launcher, loops and task table: servers that are killed, agents that
attach, run, save and end as real ones do, nodes and an API server under testing.kube.chaos. It must hold that

* no two programs of one rank run at once, and no two programs on one node: also physically, on nodes cut off,
* every task ends well after the storm, none before one that goes first, and then nothing of it is left in the cluster.

    python -m hai_backend.testing.storm 0 1000
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import structlog

from hai_backend.domain.spec import AfterSpec
from hai_backend.domain.task import Outcome, TaskState
from hai_backend.launch.manifests.names import TASK
from hai_backend.store.memory import MemoryStore
from hai_backend.testing import a_spec
from hai_backend.testing.direct import DirectTransport
from hai_backend.testing.kube import Chaos, FakeCluster, NodeSpec
from hai_backend.testing.storm_agents import AgentKubelet, Crowd
from hai_backend.testing.storm_server import StormServer
from hai_backend.testing.virtual import LoopTimers, run_virtually

_KINDS = ("pods", "configmaps", "secrets", "services", "ingresses", "networkpolicies")
_STORM_SECONDS = 600.0
_CALM_SECONDS = 3_000.0
_HANDS = 4  # pods that are deleted by force while no server is there, at most


@dataclass(frozen=True, slots=True)
class Weather:
    """How large the world is, and how bad the storm."""

    nodes: int
    tasks: int
    faults: float  # part of the requests that meet one
    mishap_seconds: float  # between losses of nodes, ends of streams …
    restart_seconds: float  # between deaths of the server
    stop_seconds: float  # that pods take to end when they are deleted
    linger_seconds: float  # that programs run on after their pod was deleted by force

    @staticmethod
    def of(seed: int) -> Weather:
        """Every seed has its own."""
        random = Random(f"weather {seed}")
        return Weather(
            nodes=random.randint(3, 8),
            tasks=random.randint(4, 12),
            faults=random.uniform(0.0, 0.15),
            mishap_seconds=random.uniform(6.0, 40.0),
            restart_seconds=random.uniform(15.0, 200.0),
            stop_seconds=random.uniform(0.0, 5.0),
            linger_seconds=random.uniform(10.0, 50.0),
        )


class Storm:
    """One run. `story` is what happened, in order: the same seed tells the same."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._seed = seed
        self._weather = Weather.of(seed)
        self._store = MemoryStore()
        self._server: StormServer | None = None
        self.story: list[str] = []

    def run(self) -> None:
        """Raises AssertionError when something did not hold."""
        run_virtually(self._run())

    async def _run(self) -> None:
        nodes = [NodeSpec(f"node{i + 1}", gpus=0) for i in range(self._weather.nodes)]
        timers = LoopTimers()
        async with FakeCluster(
            nodes, kubelet=AgentKubelet, timers=timers, node_grace=20.0
        ) as cluster:
            crowd = Crowd(cluster, lambda: self._server, Random(self._seed + 1), self._tell)
            self._cluster, self._crowd = cluster, crowd
            crowd.kubelet.stop_seconds = self._weather.stop_seconds
            crowd.kubelet.linger_seconds = self._weather.linger_seconds
            await self._start()
            await self._submit()
            with Chaos(
                cluster, self._seed, self._weather.faults, self._weather.mishap_seconds
            ) as chaos:
                await self._storm(chaos)
            self.story += [f"{at:.0f} {what}" for at, what in chaos.story]
            await self._calm()
            await crowd.close()
            await self._die()

    async def _storm(self, chaos: Chaos) -> None:
        until = self._now() + _STORM_SECONDS
        while (left := until - self._now()) > 0:
            wait = self._random.expovariate(1 / self._weather.restart_seconds)
            await asyncio.sleep(min(wait, left))
            await self._amid_something()
            await self._die()
            for _ in range(self._random.randint(0, _HANDS)):
                chaos.delete_by_force()
            await asyncio.sleep(self._random.uniform(0.0, 15.0))
            await self._start()

    async def _amid_something(self) -> None:
        """Servers die most often when they do something: wait for writes to the cluster."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30.0):
                for _ in range(self._random.randrange(8)):
                    await self._cluster.api.store.written()
        await asyncio.sleep(self._random.uniform(0.0, 0.02))

    async def _calm(self) -> None:
        """All is well again: everything ends, and nothing is left."""
        try:
            async with asyncio.timeout(_CALM_SECONDS):
                while not await self._finished() or [*self._left()]:  # noqa: ASYNC110
                    await asyncio.sleep(5.0)
        except TimeoutError:
            raise AssertionError(await self._unfinished()) from None

    async def _finished(self) -> bool:
        tasks = [await self._store.get_task(i + 1) for i in range(self._weather.tasks)]
        bad = [t for t in tasks if t and t.outcome not in (None, Outcome.SUCCEEDED)]
        assert not bad, f"{bad[0].id} ended {bad[0].outcome}: {bad[0].reason}"
        by_id = {task.id: task for task in tasks if task}
        for task in by_id.values():
            for after in task.spec.options.after:
                first, began = by_id[after.task].finished_at, task.started_at
                early = began is not None and (first is None or began < first)
                assert not early, f"{task.id} started before {after.task} had ended"
        return all(t is not None and t.state is TaskState.FINISHED for t in tasks)

    def _left(self) -> Iterator[str]:
        for plural in _KINDS:
            for body in self._cluster.objects(plural, "default"):
                if TASK in (body["metadata"].get("labels") or {}):
                    yield f"{plural}/{body['metadata']['name']}"

    async def _unfinished(self) -> str:
        tasks = await self._store.unfinished_tasks()
        rows = [f"task {t.id}: {t.state} {t.run} {t.reason}" for t in tasks]
        return "\n".join(["it never ended:", *rows, *self._left()])

    async def _submit(self) -> None:
        assert self._server is not None
        for i in range(self._weather.tasks):
            first = self._random.sample(range(1, i + 1), self._random.randint(0, min(i, 2)))
            after = tuple(AfterSpec(task) for task in first)
            nodes = self._random.randint(1, 3)
            spec = a_spec(f"t{i}", nodes=nodes, save_within=5.0, after=after)
            await self._server.ledger.submit("ada", spec, f"request-{i}")

    async def _start(self) -> None:
        self._tell("a server starts")
        self._server = StormServer(
            self._store, DirectTransport(self._cluster), self._random.getrandbits(32)
        )
        await self._server.start()

    async def _die(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._tell("the server dies")
            await server.die()

    def _tell(self, what: str) -> None:
        self.story.append(f"{self._now():.2f} {what}")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def main(first: int, count: int) -> int:
    """Storms of so many seeds; answers how many went wrong."""
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    wrong = 0
    for seed in range(first, first + count):
        try:
            Storm(seed).run()
        except Exception as error:
            wrong += 1
            print(f"seed {seed}: {error.__cause__ or error!r}", flush=True)
    print(f"{count} storms, {wrong} went wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
