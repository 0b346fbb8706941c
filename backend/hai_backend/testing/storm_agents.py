"""Agents and programs of the storm: what runs in pods, wherever those are, whoever can reach them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import RunState
from hai_backend.launch.base import RankKey
from hai_backend.launch.manifests.names import key_of
from hai_backend.loops.hub import Session
from hai_backend.tasks import events as ev
from hai_backend.tasks import greeting
from hai_backend.testing.kube import FakeCluster, InstantKubelet
from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.kubelet.containers import LocalPod, Running
from hai_backend.testing.storm_server import FENCE_SECONDS, StormServer

if TYPE_CHECKING:
    from hai.v1 import agent_service_pb2 as pb

_LEASE_SECONDS = 0.8 * FENCE_SECONDS
_LONGEST_WORK = 90.0


class AgentKubelet(InstantKubelet):
    """Says when a pod begins to run."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.began: Callable[[LocalPod], None] = lambda local: None

    def _run(self, local: LocalPod) -> None:
        super()._run(local)
        self.began(local)


class Crowd:
    """All agents. `server` is the one that lives now."""

    def __init__(
        self,
        cluster: FakeCluster,
        server: Callable[[], StormServer | None],
        random: Random,
        tell: Callable[[str], None],
    ) -> None:
        assert isinstance(cluster.kubelet, AgentKubelet)
        self.kubelet = cluster.kubelet
        self.kubelet.began = self._began
        self.machines = cluster.machines
        self.server = server
        self.random = random
        self.tell = tell
        self.work: dict[int, float] = defaultdict(lambda: random.uniform(5.0, _LONGEST_WORK))
        self.agents: list[Agent] = []
        self._loops: set[asyncio.Task[None]] = set()

    def check(self, new: Agent) -> None:
        """Its program begins: is it alone?"""
        for other in self.agents:
            if other is not new and other.running:
                same = other.key.task_id == new.key.task_id and other.key.rank == new.key.rank
                assert not same, f"{new.key} runs on {new.node} beside {other.key} on {other.node}"
                assert other.node != new.node, f"{new.key} shares {new.node} with {other.key}"

    async def close(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    def _began(self, local: LocalPod) -> None:
        key = key_of(local.pod.body["metadata"]["labels"])
        assert key is not None
        agent = Agent(self, local, key)
        self.agents = [a for a in self.agents if a.alive] + [agent]
        loop = asyncio.ensure_future(agent.live())
        self._loops.add(loop)
        loop.add_done_callback(self._ended)

    def _ended(self, loop: asyncio.Task[None]) -> None:
        self._loops.discard(loop)
        if not loop.cancelled() and (error := loop.exception()) is not None:
            self.kubelet.api.store.failures.append(error)


class Agent:
    """One, with its program. `running` is true while the program's process exists."""

    def __init__(self, crowd: Crowd, local: LocalPod, key: RankKey) -> None:
        self._crowd = crowd
        self._local = local
        self.key = key
        self.node = local.node
        self._random = Random(f"{crowd.random.random()} {key}")
        self._started = False
        self._ended = False
        self._suspended_at: float | None = None
        self._heard = self._now()
        self._code = 0

    @property
    def alive(self) -> bool:
        """Whether its container exists."""
        known = self._crowd.kubelet.pods.get(self._local.pod.uid) is self._local
        return known and isinstance(self._local.mains[0].state, Running)

    @property
    def running(self) -> bool:
        return self._started and not self._ended and self.alive

    async def live(self) -> None:
        """Until its container ends, by itself or not."""
        await self._pause()
        while self.alive:
            server = self._reachable()
            if server is not None:
                with suppress(HaiError):
                    await self._attach(server)
            if self._now() - self._heard > _LEASE_SECONDS:
                self._exit(0)
            self._work()
            await self._pause()

    def _reachable(self) -> StormServer | None:
        server = self._crowd.server()
        up = self._crowd.machines.alive(self.node)
        return server if server is not None and up and server.listening else None

    async def _attach(self, server: StormServer) -> None:
        """One stream, until it breaks."""
        if not self._current(server):
            return self._exit(0)  # FENCED
        session, task = Session(), await server.ledger.get(self.key.task_id)
        server.hub.enter(self.key, session)
        for instruction in greeting(task, self.key.rank, started=self._started):
            server.performer.perform(task, instruction)
        key = self.key
        await server.ledger.apply(key.task_id, ev.RankAttached(key.run, key.rank, "10.0.0.1", 4000))
        while self.alive and self._reachable() is server:
            self._heard = self._now()
            await self._hear(server, session)
            self._work()
            if self._ended:
                await self._report(server)
                return
            await self._pause()
        server.hub.leave(key, session)

    def _current(self, server: StormServer) -> bool:
        task = server.ledger.unfinished().get(self.key.task_id)
        if task is None or task.run is None or task.run.number != self.key.run:
            return False
        rank = task.run.ranks[self.key.rank]
        return not (task.waiting or task.run.state is RunState.ENDED or rank.state.gone)

    async def _hear(self, server: StormServer, session: Session) -> None:
        while True:
            try:
                async with asyncio.timeout(0.01):
                    message = await session.next()
            except TimeoutError:
                return
            if message is None or not self.alive:
                return
            await self._take(server, message)

    async def _take(self, server: StormServer, message: pb.AttachResponse) -> None:
        match message.WhichOneof("message"):
            case "go" if not self._started:
                self._started = True
                self._crowd.tell(f"{self.key} runs on {self.node}")
                self._crowd.check(self)
                await self._say(server, ev.ProgramStarted(self.key.run, self.key.rank))
            case "suspend" if self.running and self._suspended_at is None:
                self._suspended_at = self._now()
                await self._say(server, ev.SuspendAcknowledged(self.key.run, self.key.rank))
                if self._random.random() < 0.8:  # the others do not listen
                    await self._say(server, ev.Yielded(self.key.run, self.key.rank))
            case "end":
                self._ended, self._code = True, 143

    async def _say(self, server: StormServer, event: ev.Event) -> None:
        await server.ledger.apply(self.key.task_id, event)

    async def _report(self, server: StormServer) -> None:
        """Said again until it is recorded: by `_attach`, which comes back here."""
        yielded = self._suspended_at is not None and self._code == 143
        exited = ev.ProgramExited(self.key.run, self.key.rank, self._code, "", yielded)
        await self._say(server, exited)
        self._exit(0)

    def _work(self) -> None:
        """The program gets on, a second at a time; rank 0 keeps what is done for the next run."""
        if not self.running:
            return
        left = self._crowd.work[self.key.task_id]
        if self.key.rank == 0:
            self._crowd.work[self.key.task_id] = left - 1.0
        if left <= 0:
            self._ended, self._code = True, 0

    def _exit(self, code: int) -> None:
        """The agent ends, and takes its program along."""
        if not self.alive:
            return
        self._ended = True
        kubelet = self._crowd.kubelet
        for container in self._local.mains:
            container.end(code, kubelet.api.timers.now())
        kubelet.publish(self._local)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0.5, 1.5))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
