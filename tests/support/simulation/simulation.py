"""The main job in a cluster where everything fails or falls silent: by one seed, in virtual time.

A model of the rest of the world around the real launcher, loops, task table, agent service, sessions and leases:
servers that are killed, frozen or deposed; programs that obey or not; nodes and an API server under random faults;
links, agents, machines and kubelets that fall silent (faults). It must hold that

* no two programs of one rank run at once, and no two programs on one node: also physically, on nodes cut off,
* nothing is lost that a server has acknowledged: lines of logs, whole-life states,
* an agent that a leading server does not hear is shown as silent,
* every task ends well after the storm, none before one that goes first, and then nothing of it is left in the cluster.

    python -m tests.support.simulation 0 1000
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hai_backend.domain.spec import AfterSpec
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.launch.manifests.names import TASK
from hai_backend.logs.store import LogStore
from hai_backend.store.memory.store import MemoryStore
from hai_backend.testing.kube import Chaos, FakeCluster, NodeSpec
from tests.support.builders import a_spec
from tests.support.direct_transport import SimulatedTransport
from tests.support.simulation.agent import AgentComponents
from tests.support.simulation.agent_pool import AgentKubelet, AgentPool
from tests.support.simulation.faults import FaultInjector
from tests.support.simulation.invariants import Invariants
from tests.support.simulation.network import Network
from tests.support.simulation.server import ServerComponents, SimulatedServer
from tests.support.virtual_time import LoopTimers, run_with_processes

_KINDS = ("pods", "configmaps", "secrets", "services", "ingresses", "networkpolicies")
_STORM_SECONDS = 400.0
_CALM_SECONDS = 3_000.0
_SHM = Path("/dev/shm")
_ADDRESSES = ("server-a:1", "server-b:1")
_LOG_BYTES = 1_000_000
_HANDS = 4  # pods that are deleted by force while no server is there, at most


@dataclass(frozen=True, slots=True)
class Conditions:
    """How large the world is, and how bad the storm."""

    nodes: int
    tasks: int
    faults: float  # part of the requests that meet one
    mishap_seconds: float  # between losses of nodes, ends of streams …
    silence_seconds: float  # between things that fall silent
    quiet: float  # part of them that takes a node away for long
    restart_seconds: float  # between ends of servers
    stop_seconds: float  # that pods take to end when they are deleted
    linger_seconds: float  # that programs run on after their pod was deleted by force
    longest_work: float  # seconds that a task needs

    @staticmethod
    def of(seed: int) -> Conditions:
        """Every seed has its own."""
        random = Random(f"weather {seed}")
        return Conditions(
            nodes=random.randint(4, 7),
            tasks=random.randint(3, 6),
            faults=random.uniform(0.0, 0.15),
            mishap_seconds=random.uniform(10.0, 80.0),
            silence_seconds=random.uniform(8.0, 50.0),
            quiet=random.uniform(0.2, 0.6),
            restart_seconds=random.uniform(30.0, 300.0),
            stop_seconds=random.uniform(0.0, 5.0),
            linger_seconds=random.uniform(10.0, 50.0),
            longest_work=random.choice((100.0, 160.0, 300.0)),
        )


@dataclass(frozen=True, slots=True)
class Components:
    """What agents and servers are made of. Tests break it, and see that the storm notices."""

    agents: AgentComponents = field(default_factory=AgentComponents)
    servers: ServerComponents = field(default_factory=ServerComponents)


class Simulation:
    """One run. `story` is what happened, in order: the same seed tells the same."""

    def __init__(
        self, seed: int, parts: Components | None = None, conditions: Conditions | None = None
    ) -> None:
        self._random = Random(seed)
        self._seed = seed
        self._conditions = conditions or Conditions.of(seed)
        self._parts = parts or Components()
        self._store = MemoryStore()
        self._server: SimulatedServer | None = None
        self._deposed: dict[SimulatedServer, asyncio.Task[None]] = {}
        self._address = _ADDRESSES[0]
        self._looking: set[asyncio.Task[None]] = set()
        self.history: list[str] = []

    def run(self) -> None:
        """Raises AssertionError when something did not hold."""
        quiet = redirect_stderr(StringIO())  # agents write their journals there
        with TemporaryDirectory(dir=_SHM if _SHM.exists() else None) as directory, quiet:
            run_with_processes(self._run(Path(directory)))

    async def _run(self, directory: Path) -> None:
        nodes = [NodeSpec(f"node{i + 1}", gpus=0) for i in range(self._conditions.nodes)]
        async with FakeCluster(
            nodes, kubelet=AgentKubelet, timers=LoopTimers(), node_grace=8.0
        ) as cluster:
            self._make(cluster, directory)
            checking = asyncio.create_task(self._invariants.run())
            try:
                await self._play(cluster)
            finally:
                checking.cancel()
                await self._close()
            self._invariants.at_the_end(await self._tasks())

    async def _play(self, cluster: FakeCluster) -> None:
        await self._start()
        await self._submit()
        conditions = self._conditions
        with Chaos(cluster, self._seed, conditions.faults, conditions.mishap_seconds) as chaos:
            await self._storm(chaos)
        self.history += [f"{at:.0f} {what}" for at, what in chaos.story]
        await self._calm()

    async def _close(self) -> None:
        """Whatever has happened: what goes on would go on for ever."""
        self._fault_injector.end()
        self._pool.close()
        await self._die()
        for server, ending in list(self._deposed.items()):
            ending.cancel()
            self._network.die(server)
            await server.die()

    def _make(self, cluster: FakeCluster, directory: Path) -> None:
        self._cluster, self._transport = cluster, SimulatedTransport(cluster)
        self._network = Network(_ADDRESSES)
        self._logs = directory / "logs"
        pool = AgentPool(
            *(cluster, self._network, Random(self._seed + 1), self._log, directory),
            parts=self._parts.agents,
            longest_work=self._conditions.longest_work,
        )
        pool.kubelet.stop_seconds = self._conditions.stop_seconds
        pool.kubelet.linger_seconds = self._conditions.linger_seconds
        pool.started = self._check_order
        self._pool = pool
        self._fault_injector = FaultInjector(
            *(cluster, pool, self._network, self._transport, self._servers),
            *(Random(self._seed + 2), self._conditions.silence_seconds, self._conditions.quiet),
            log=self._log,
        )
        self._join_network(cluster)
        self._invariants = Invariants(pool, lambda: self._server, self._logs)

    def _join_network(self, cluster: FakeCluster) -> None:
        """Nodes that cannot be reached, or are off, are so for agents too; not those whose kubelets are silent."""
        nodes, injector = cluster.nodes, self._fault_injector
        on_silence, on_heartbeat = nodes.on_silence, nodes.on_heartbeat

        def cut_off(name: str) -> None:
            if name not in injector.stopped_kubelets:
                self._network.cut(name)
            on_silence(name)

        def reconnect(name: str) -> None:
            self._network.join(name)
            on_heartbeat(name)

        nodes.on_silence, nodes.on_heartbeat = cut_off, reconnect
        self._pool.kubelet.crashed = self._network.vanish

    async def _storm(self, chaos: Chaos) -> None:
        until = self._now() + _STORM_SECONDS
        self._fault_injector.begin()
        while (left := until - self._now()) > 0:
            wait = self._random.expovariate(1 / self._conditions.restart_seconds)
            await asyncio.sleep(min(wait, left))
            await self._amid_something()
            await self._lose_server(chaos)
            self._invariants.raise_failures()
        self._fault_injector.end()

    async def _lose_server(self, chaos: Chaos) -> None:
        """It is killed; or frozen, or without its database, while another one may take over."""
        what = self._random.choices(("dies", "is frozen", "is deposed"), weights=(3, 2, 2))[0]
        if what == "is frozen":
            return await self._freeze_server()
        if what == "is deposed":
            return await self._depose()
        await self._die()
        for _ in range(self._random.randint(0, _HANDS)):
            chaos.delete_by_force()
        await asyncio.sleep(self._random.uniform(0.0, 15.0))
        await self._start()

    async def _freeze_server(self) -> None:
        server, seconds = self._server, self._random.choice((5.0, 31.0, 61.0))
        assert server is not None
        self._log(f"the server is frozen for {seconds:g} s")
        server.process.freeze()
        if self._random.random() < 0.5:  # there is another one
            await asyncio.sleep(self._random.uniform(3.0, 4.0))
            await self._depose()
        await asyncio.sleep(seconds)
        server.process.thaw()

    async def _depose(self) -> None:
        """Another server leads from now on; the old one does not know, and may not reach the database to learn it."""
        old = self._server
        assert old is not None
        old.epoch.over = True
        self._deposed[old] = asyncio.create_task(self._end_deposed(old))
        self._address = next(a for a in _ADDRESSES if a != self._address)
        await self._start()

    async def _end_deposed(self, server: SimulatedServer) -> None:
        await server.lost.wait()
        self._log("a server learns that it leads no more")
        self._network.die(server)
        await server.die()
        self._invariants.failures += server.failures
        del self._deposed[server]

    async def _amid_something(self) -> None:
        """Servers die most often when they do something: wait for writes to the cluster."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30.0):
                for _ in range(self._random.randrange(8)):
                    await self._cluster.api.store.next_write()
        await asyncio.sleep(self._random.uniform(0.0, 0.02))

    async def _calm(self) -> None:
        """All is well again: everything ends, and nothing is left."""
        try:
            async with asyncio.timeout(_CALM_SECONDS):
                while not await self._finished() or [*self._left()]:
                    self._invariants.raise_failures()
                    await asyncio.sleep(5.0)
        except TimeoutError:
            raise AssertionError(await self._unfinished()) from None
        self._invariants.raise_failures()

    async def _tasks(self) -> list[Task]:
        found = [await self._store.get_task(i + 1) for i in range(self._conditions.tasks)]
        return [task for task in found if task is not None]

    async def _finished(self) -> bool:
        tasks = await self._tasks()
        bad = [t for t in tasks if t.outcome not in (None, Outcome.SUCCEEDED)]
        assert not bad, f"{bad[0].id} ended {bad[0].outcome}: {bad[0].reason}"
        return all(t.state is TaskState.FINISHED for t in tasks)

    def _check_order(self, key: RankKey) -> None:
        """A program has started: those that go first have ended, whatever clocks say."""
        self._looking.add(asyncio.create_task(self._check_first(key)))

    async def _check_first(self, key: RankKey) -> None:
        task = await self._store.get_task(key.task_id)
        assert task is not None
        for after in task.spec.options.after:
            first = await self._store.get_task(after.task)
            if first is None or first.state is not TaskState.FINISHED:
                error = AssertionError(f"{key} started before {after.task} had ended")
                self._invariants.failures.append(error)

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
        for i in range(self._conditions.tasks):
            first = self._random.sample(range(1, i + 1), self._random.randint(0, min(i, 2)))
            after = tuple(AfterSpec(task) for task in first)
            nodes = self._random.choice((1, 1, 2, 2, 3))
            spec = a_spec(f"t{i}", nodes=nodes, save_within=5.0, after=after)
            await self._server.task_manager.submit("ada", spec, f"request-{i}")

    async def _start(self) -> None:
        """A server, where the last one was or where its successor is."""
        self._log(f"a server starts at {self._address}")
        parts = replace(self._parts.servers, logs=LogStore(self._logs, _LOG_BYTES, alone=False))
        self._server = server = SimulatedServer(
            self._store, self._transport, self._random.getrandbits(32), parts
        )
        previous = self._network.at(self._address)
        if previous is not None:
            self._network.die(previous)
        self._network.listen(self._address, server)
        await server.start()

    def _servers(self) -> list[SimulatedServer]:
        return [*self._deposed, *([self._server] if self._server is not None else [])]

    async def _die(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._log("the server dies")
            self._network.die(server)
            await server.die()
            self._invariants.failures += server.failures

    def _log(self, what: str) -> None:
        self.history.append(f"{self._now():.2f} {what}")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
