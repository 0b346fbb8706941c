"""A simulated server: the real task manager, loops, launcher and agent service, with a very simple scheduler.

It can end like a process: what it was doing stops, and what it has not written is lost. The store refuses the writes of
a server that is no longer the leader, as the epoch of a real server does. The server learns this when it renews its
leadership, as a real one does, and then ends. It can also be frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, cast

from grpc import StatusCode

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.service import AgentService
from hai_backend.api.agents.service_deps import AgentDeps, Logs
from hai_backend.api.environments.pinning import EnvironmentPinning
from hai_backend.api.server.errors import status_of
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.heartbeat_monitor import HeartbeatMonitor
from hai_backend.controllers.cluster.launch import LaunchReconciler
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.tasks.deadlines import Deadlines
from hai_backend.controllers.tasks.dependencies import Dependencies
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.accounts.user import User
from hai_backend.domain.errors import Deposed, HaiError, Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task, holders
from hai_backend.domain.timing import Timing
from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.api import Transport
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest, Terms, run_request
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.limits import DEFAULTS
from hai_backend.server.election.next_action import SILENT_SECONDS
from hai_backend.store.base import Store
from tests.support.simulation.network import End, ServerStream, end_of
from tests.support.virtual_time import LoopTimers, SimulatedProcess

FENCE_SECONDS = 100.0
TIMING = Timing(fence_after=FENCE_SECONDS)
SECRET = b"storm"
SETTINGS = ClusterSettings(
    namespace="default",
    instance="storm",
    server_addresses=("server:1",),
    agent_path="/opt/hai/agent",
    images={"default": "any/image:1"},
    default_uid=1000,
    fence_after=FENCE_SECONDS,
)
OPTIONS = Options(relist_seconds=60.0, lost_after=5.0)
_PASS_SECONDS = 1.0
_SUSPENSION_SECONDS = 60.0
_RENEW_SECONDS, _STORE_SECONDS = 1.0, 0.003


class FencedStore:
    """The store of one server. It raises an error if the server no longer leads, or cannot reach the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.over = False
        self.away = False

    def __getattr__(self, name: str) -> Any:
        if self.over:
            raise Deposed("another server leads")
        if self.away:
            raise Unavailable("the database cannot be reached")
        return getattr(self._store, name)


class ServerClock(LoopTimers):
    """The wall clock of a server. A fault may change it."""

    ahead_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_seconds

    def reset(self) -> None:
        """Correct the clock."""
        self.ahead_seconds = 0.0


class _Environments:
    """The environments of a simulation, in which no task names an environment."""

    async def __call__(self, task: Task) -> pb.AgentEnvironment | None:
        return None

    def haienv_variables(self, user: str) -> Mapping[str, str]:
        return {}


class _NoLogs:
    def append(self, key: RankKey, offset: int, data: bytes) -> int:
        return offset + len(data)

    def size(self, key: RankKey) -> int:
        return 0

    def show(self, key: RankKey, bar: str) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ServerComponents:
    """The parts of simulated servers: the common logs, and the dependencies of the agent service.

    A test may replace one with a faulty part.
    """

    logs: Logs = field(default_factory=_NoLogs)
    ports: type[AgentDeps] = AgentDeps
    settings: ClusterSettings = SETTINGS


class SimulatedServer:
    """One process of a server, from its start to its end."""

    def __init__(
        self, store: Store, transport: Transport, seed: int, parts: ServerComponents | None = None
    ) -> None:
        parts = parts or ServerComponents()
        self.process = SimulatedProcess("server")
        self.epoch = FencedStore(store)
        self.last_message_at: dict[RankKey, float] = {}  # when it last read a message of an agent
        self.lost = asyncio.Event()  # set when the server has learned that it no longer leads
        self.failures: list[BaseException] = []
        self._renewed = -inf
        own = cast(Store, self.epoch)
        self._random = Random(seed)
        self.clock = ServerClock()
        self.hub = ConnectedAgents()
        self.launcher = KubernetesLauncher(transport, parts.settings, OPTIONS, Random(seed))
        self.cluster = Cluster(own, self.clock, changed=lambda: None)
        self.executor = Executor(
            self.launcher, self.hub, str, self.cluster.nodes().get, self._describe
        )
        self.task_manager = TaskManager(
            own, self.clock, ChangeFeed(), perform=self.executor.perform, changed=self._changed
        )
        self.executor.task_manager = self.task_manager
        self.timers = Deadlines(self.clock, self._tick)
        self.launching = LaunchReconciler(
            self.launcher, self.task_manager, self.cluster, self.executor
        )
        self._work: set[asyncio.Task[None]] = set()
        self.successors = Dependencies(self.task_manager, self._begin)
        self.agent_silence = HeartbeatMonitor(
            self.task_manager,
            self.clock,
            self._begin,
            silent_after=TIMING.silent_after,
            return_within=DEFAULTS.return_within,
        )
        self.service = AgentService(self._ports(parts))

    def _ports(self, parts: ServerComponents) -> AgentDeps:
        return parts.ports(
            task_manager=self.task_manager,
            connected_agents=self.hub,
            executor=self.executor,
            logs=parts.logs,
            confirm=self._confirm,
            clock=self.clock,
            secret=SECRET,
            cluster=self.cluster,
            path_in_rank=lambda directory: "",
            environment_pinning=cast(EnvironmentPinning, _Environments()),
            workspace_path=lambda task: "",
            record_checkpoint=lambda key, report: None,
            record_use=lambda key, use: None,
            record_gpus=lambda key, gpus: None,
            tunnels=Tunnels(self.hub),
            base_url=lambda task_id, service: "",
            record_services=lambda task, key, reported: None,
            check_level=lambda task, level: Priority.NORMAL,
            is_lease_fresh=self.fresh,
            message_received=self._heard,
        )

    @property
    def listening(self) -> bool:
        """Whether agents may attach."""
        return self.launching.listed.is_set() and not self.lost.is_set()

    def fresh(self) -> bool:
        """Whether it can know that it leads."""
        return asyncio.get_running_loop().time() - self._renewed < SILENT_SECONDS

    async def start(self) -> None:
        """Start. What needs the API server begins when that answers."""
        await self.process.create_task(self._start())

    async def _start(self) -> None:
        self._begin(self._lead())
        await self.cluster.load()
        await self.task_manager.load()
        for task in self.task_manager.unfinished().values():
            self.timers.set(task)
        self.successors.load(self.task_manager.unfinished().values())
        self._begin(self.launching.run())
        self._begin(self._schedule())
        self._begin(self._suspend())

    async def die(self) -> None:
        """End at once, as if killed."""
        self.epoch.over = True
        self.lost.set()
        self.timers.close()
        self.agent_silence.close()
        for work in self._work:
            work.cancel()
        self.process.release()
        await asyncio.gather(*self._work, return_exceptions=True)
        self.hub.close()
        await self.executor.close()
        await self.launcher.close()

    async def serve(self, stream: ServerStream) -> None:
        """Serve an agent's call of Attach."""
        responses = self.service.Attach(stream.requests(), cast(Any, stream))
        try:
            async for response in responses:
                await stream.respond(response)
        except HaiError as error:
            stream.finish(end_of(status_of(error, "Attach")))
        except Exception as error:
            self.failures.append(error)
            stream.finish(End(StatusCode.INTERNAL, str(error)))
        else:
            stream.finish(End(StatusCode.OK))
        finally:
            await responses.aclose()  # type: ignore[attr-defined]

    def _heard(self, key: RankKey) -> None:
        self.last_message_at[key] = asyncio.get_running_loop().time()
        self.agent_silence.message_received(key)

    async def _confirm(self) -> None:
        await self.epoch.require_leader()

    async def _lead(self) -> None:
        """Renew the leadership as server.election.election does, until it is lost."""
        loop = asyncio.get_running_loop()
        while True:
            sent = loop.time()
            await asyncio.sleep(_STORE_SECONDS)
            if self.epoch.over or (self.epoch.away and not self.fresh()):
                return self.lost.set()
            if not self.epoch.away:
                self._renewed = sent
            await asyncio.sleep(_RENEW_SECONDS)

    async def _describe(self, task: Task) -> RunRequest:
        return run_request(task, User(task.user, uid=1000), Terms(), self.cluster.nodes())

    def _changed(self, before: Task | None, task: Task) -> None:
        self.timers.set(task)
        self.agent_silence.changed(before, task)
        self.successors.changed(before, task)
        if task.waiting and task.run is not None:
            self.hub.forget(task.id, task.run.number)

    async def _schedule(self) -> None:
        """Place waiting tasks once a second, in the order of their ids."""
        await self.launching.listed.wait()
        self.agent_silence.load(self.task_manager.unfinished().values())
        while True:
            for task in sorted(self.task_manager.unfinished().values(), key=lambda task: task.id):
                if (
                    task.waiting
                    and not (task.held or task.awaited)
                    and task.not_before <= self.clock.now()
                ):
                    await self._directory(task)
            await asyncio.sleep(_PASS_SECONDS)

    async def _directory(self, task: Task) -> None:
        """Place a task on random free nodes, if there are enough."""
        allocated = {rank.node for _, _, rank in holders(self.task_manager.unfinished().values())}
        free = [
            n.name for n in self.cluster.nodes().values() if n.usable and n.name not in allocated
        ]
        wanted = task.spec.resource.node_count
        if len(free) >= wanted:
            chosen = tuple(self._random.sample(sorted(free), wanted))
            placed = ev.RunPlaced(chosen, task.priority, "it fits")
            with suppress(HaiError):
                await self.task_manager.apply(task.id, placed)

    async def _suspend(self) -> None:
        """Suspend a random task now and then, as if another task needed its nodes."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / _SUSPENSION_SECONDS))
            running = sorted(t.id for t in self.task_manager.unfinished().values() if not t.waiting)
            if running:
                asked = ev.SuspendAsked("storm", "it must", for_task=1)
                with suppress(HaiError):
                    await self.task_manager.apply(self._random.choice(running), asked)

    def _tick(self, task_id: int, run: int, deadline: float) -> None:
        self._begin(self.task_manager.apply_when_stored(task_id, ev.Ticked(run, deadline)))

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
