"""The main job in a cluster with random faults, in virtual time: one seed determines everything that happens.

The launcher, loops, task manager, agent service, sessions and leases are real. The rest is a model: servers are killed,
frozen or deposed; programs obey or not; nodes and the API server have random faults; links, agents, machines and
kubelets fall silent (faults.py). The simulation checks that

* no two programs of one rank and no two programs on one node run at the same time, also on nodes that are cut off;
* nothing that a server has acknowledged is lost: log lines and whole-life states;
* a leading server shows an agent as silent if it receives no message from the agent;
* no task starts before the tasks that it follows have finished; after the faults have ended, every task succeeds, and
  no object of it is left in the cluster.

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
_HANDS = 4  # how many pods are deleted by force at most while no server runs


@dataclass(frozen=True, slots=True)
class Conditions:
    """The size of the cluster, and how frequent the faults are."""

    nodes: int
    tasks: int
    faults: float  # the part of the requests to the API server that meet a fault
    mishap_seconds: float  # mean time between losses of nodes, ends of streams and the like
    silence_seconds: float  # mean time between faults that silence something
    quiet: float  # the part of these faults that takes a node away for long
    restart_seconds: float  # mean time between losses of servers
    stop_seconds: float  # how long pods take to end after they are deleted
    linger_seconds: float  # how long programs run on after their pod was deleted by force
    longest_work: float  # the most seconds of work of a task

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
    """The parts of agents and servers. Tests replace some with faulty ones, which the simulation must detect."""

    agents: AgentComponents = field(default_factory=AgentComponents)
    servers: ServerComponents = field(default_factory=ServerComponents)


class Simulation:
    """One simulation. `history` lists what happened, in order. It is the same for the same seed."""

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
        """Run the simulation. Raises AssertionError if a check fails."""
        quiet = redirect_stderr(StringIO())  # agents write their logs there
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
        """Stop everything, also after an error, because the parts of the simulation never stop on their own."""
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
        """Cut nodes off from agents too when they are unreachable or off, but not when only the kubelet is silent."""
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
        """Kill the server, freeze it, or depose it. In the last two cases, another server may start meanwhile."""
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
        if self._random.random() < 0.5:  # another server takes over
            await asyncio.sleep(self._random.uniform(3.0, 4.0))
            await self._depose()
        await asyncio.sleep(seconds)
        server.process.thaw()

    async def _depose(self) -> None:
        """Let another server lead from now on. The old one learns this only when it next reaches the database."""
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
        """Wait for some writes to the cluster, because losing a server is most harmful in the middle of an action."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30.0):
                for _ in range(self._random.randrange(8)):
                    await self._cluster.api.store.next_write()
        await asyncio.sleep(self._random.uniform(0.0, 0.02))

    async def _calm(self) -> None:
        """Wait, without faults, until all tasks have finished and no object is left."""
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
        """Check, for a program that has started, that the tasks before it have finished, whatever the clocks say."""
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
        """Start a server at the address of the last one or of its successor."""
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
