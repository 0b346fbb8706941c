"""One reign: what exists only while this server leads. Constructs every part, joins them, starts and stops them.

A server with SQLite has one reign, from start to end; of several servers on PostgreSQL each may have some.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from hai.v1.agent_service_pb2 import ServicesReported
from hai_backend.auth import container_tokens, run_tokens
from hai_backend.auth.directory import Directory
from hai_backend.config import Settings
from hai_backend.domain.errors import NoLeader
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared import container_of
from hai_backend.domain.task import Task, TaskState
from hai_backend.environments.haienv import Haienv
from hai_backend.home import first_admin
from hai_backend.launch.base import Launcher, RankKey
from hai_backend.launch.shared import Shared
from hai_backend.logs.store import LogStore
from hai_backend.loops import learning, measuring
from hai_backend.loops.checkpoints import Checkpoints
from hai_backend.loops.clock import Clock
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.feed import Feed
from hai_backend.loops.hub import Hub
from hai_backend.loops.idling import put_away
from hai_backend.loops.interruptions import Interruptions
from hai_backend.loops.launching import Launching
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.performing import Performer
from hai_backend.loops.recording import Recording
from hai_backend.loops.scheduling import Scheduling
from hai_backend.loops.service_board import ServiceBoard
from hai_backend.loops.timers import Timers
from hai_backend.loops.tunnels import Tunnels
from hai_backend.loops.usage import Usage
from hai_backend.loops.work import Work
from hai_backend.metrics.prometheus import Metrics
from hai_backend.proxy.addresses import Addresses
from hai_backend.proxy.front import Front
from hai_backend.proxy.rooms import Rooms
from hai_backend.proxy.sessions import Sessions
from hai_backend.proxy.standing import Standing
from hai_backend.sched import Policy
from hai_backend.services import node_labels
from hai_backend.services.agent_ports import AgentPorts
from hai_backend.services.agent_service import AgentService
from hai_backend.services.assemble import Parts, gate_of, servicers
from hai_backend.services.capacity import Capacity
from hai_backend.services.containers import NoBrowsers
from hai_backend.services.describing import Describing
from hai_backend.services.environment_pinning import EnvironmentPinning
from hai_backend.services.environments import Environments
from hai_backend.services.forecasting import Forecasting
from hai_backend.services.server import handlers
from hai_backend.services.submitting import ContainerTerms, Submitting
from hai_backend.services.switchboard import Here
from hai_backend.services.task_access import TaskAccess
from hai_backend.services.workspace_pins import WorkspacePins
from hai_backend.services.workspaces import Keeping, Workspaces
from hai_backend.store.base import Store
from hai_backend.tasks import events as ev
from hai_backend.tasks.goodput import Goodput, goodput
from hai_backend.tasks.limits import Limits

_GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What a reign gets of the process: it lasts longer. Metrics count over all reigns."""

    clock: Clock
    secret: bytes
    metrics: Metrics
    fresh: Callable[[], bool]  # whether this server can know that it leads
    addresses: Addresses | None = (
        None  # of services of tasks, for browsers; None: they are not served
    )
    tls: ssl.SSLContext | None = None  # of browsers


class Reign:
    """`load`, then `govern`; whatever happened, `close` at the end."""

    def __init__(
        self, settings: Settings, store: Store, launcher: Launcher, tools: Tools, *, alone: bool
    ) -> None:
        self.settings = settings
        self.store = store
        self.launcher = launcher
        self.clock = tools.clock
        self.metrics = tools.metrics
        self._tools = tools
        self._work = Work()
        self.standings = measuring.Standings(self.metrics)
        self.directory = Directory(store, changed=self._ring)
        self.hub = Hub()
        self.tunnels = Tunnels(self.hub)
        self.directory.checking.append(self.tunnels.check)
        self.board = ServiceBoard(self.clock)
        self.logs = LogStore(settings.common / "logs", settings.log_bytes_per_rank, alone=alone)
        self.cluster = Cluster(store, self.clock, changed=self._ring)
        self._shared = Shared(settings.common, settings.kubernetes)
        self.workspaces = self._workspaces()
        self.pins = WorkspacePins(self.workspaces, self._shared.seen)
        root = settings.environment_root.resolve()
        describe = Describing(
            store, self.directory, self.cluster, self.clock, self._shared, root, self.pins
        )
        self.performer = Performer(
            launcher, self.hub, self._mint, self.cluster.nodes().get, describe
        )
        self.timers = Timers(self.clock, self._tick)
        self.checkpoints = Checkpoints(self.clock)
        self.interruptions = Interruptions()
        self.ledger = Ledger(
            store,
            self.clock,
            Feed(),
            perform=self.performer.perform,
            changed=self._changed,
            limits=Limits(build_within=settings.build_seconds),
            recall=self.checkpoints.recall,
        )
        self.performer.ledger = self.checkpoints.ledger = self.ledger
        self.usage = Usage(store, self.ledger, self.cluster, self.clock)
        self.environments = Environments(root, store, self.directory, self.ledger, self.clock)
        self.pinning = EnvironmentPinning(
            self.environments,
            visible=self._shared.sees(root),
            copies=settings.copies_of_environments,
            copies_bytes=settings.environment_copies_bytes,
        )
        self.cluster.suspend_on = self.ledger.suspend_on
        quota = settings.default_quota
        self.policy = Policy(default_quota=None if quota < 0 else quota)
        self.scheduling = Scheduling(
            self.ledger,
            self.cluster,
            self.directory,
            self.clock,
            self.policy,
            resync=settings.resync_seconds,
            passed=self._passed,
            recorder=self._recorder(),
        )
        self.checkpoints.saved = self.scheduling.saved
        self.launching = Launching(launcher, self.ledger, self.cluster, self.performer)
        self._forecasting = Forecasting(self.scheduling, self.policy, self.clock)
        self.proxy = self._proxy()
        parts = self._parts()
        self._gate, self._handlers = gate_of(parts), handlers(servicers(parts))

    async def load(self) -> None:
        """Open the store, and learn all that it and the launcher know."""
        await self.store.open()
        await self.directory.load()
        await first_admin(self.settings, self.directory, self.clock.now())
        await self.cluster.load()
        await self.ledger.load()
        self.interruptions.load(self.ledger.unfinished().values())
        for task in self.ledger.unfinished().values():
            self.timers.set(task)
            self.standings.changed(None, task)
        await self._listed(self._work.run(self.launching.run()))

    def answering(self) -> Here:
        """The services, for the switchboard."""
        return Here(self._gate, self._handlers, self._tools.fresh)

    def govern(self) -> None:
        """Let the loops run."""
        self._work.run(self.scheduling.run())
        self._work.run(self.usage.run())
        self._work.run(self.environments.begin())
        self._work.run(learning.recall(self.store, self.scheduling.learn))

    async def _listed(self, launching: asyncio.Task[None]) -> None:
        """Wait for the launcher's list: before it, nobody knows which nodes and ranks exist."""
        listed = asyncio.ensure_future(self.launching.listed.wait())
        await asyncio.wait({launching, listed}, return_when=asyncio.FIRST_COMPLETED)
        if not listed.done():
            listed.cancel()
            launching.result()

    def _workspaces(self) -> Workspaces:
        settings = self.settings
        return Workspaces(
            settings.common / "workspaces",
            lambda: self.ledger.unfinished(),
            self.directory,
            self.clock,
            Keeping(settings.workspace_bytes, settings.workspace_days * 24 * 3600.0),
        )

    def _recorder(self) -> Recording | None:
        if not self.settings.record_decisions:
            return None
        path = self.settings.home / "decisions.jsonl"
        return Recording(path, self.policy, version("hai-platform"))

    def _parts(self) -> Parts:
        return Parts(
            store=self.store,
            clock=self.clock,
            directory=self.directory,
            ledger=self.ledger,
            scheduling=self.scheduling,
            cluster=self.cluster,
            logs=self.logs,
            usage=self.usage,
            goodput=self._goodput,
            workspaces=self.workspaces,
            environments=self.environments,
            haienv=self._haienv(),
            wheels=self.settings.common / "wheels",
            pins=self.pins,
            agents=AgentService(self._agent_ports()),
            hub=self.hub,
            tunnels=self.tunnels,
            board=self.board,
            browsers=self.proxy or NoBrowsers(),
            forecasting=self._forecasting,
            containers=ContainerTerms(self.settings.containers_per_user, self.settings.lifetimes),
            remove_container=self._remove_container,
            policy=self.policy,
            name=self.settings.cluster,
            launcher=self.launcher.name,
            watched_labels=node_labels.watched(self.settings.kubernetes),
            node_ports=range(self.settings.node_ports_from, self.settings.node_ports_to + 1),
            image_check=self.settings.image_check,
            launcher_images=frozenset({"default", *self.settings.kubernetes.get("images", {})}),
            observe=self.metrics.call,
            pushed=self.metrics.pushed,
        )

    def _haienv(self) -> Haienv:
        pods = self.settings.kubernetes
        root, nobody = self.environments.root, int(pods.get("default_uid", 0))
        return Haienv(root, pods=bool(pods), uid_of_nobody=nobody)

    def _proxy(self) -> Front | None:
        where = self._tools.addresses
        if where is None:
            return None
        rooms = Rooms(
            addresses=where,
            sessions=Sessions(self._tools.secret, self.directory, self.clock),
            standing=Standing(self.board, self.scheduling, self._forecasting.starts),
            access=TaskAccess(self.ledger, self.directory),
            ledger=self.ledger,
            tunnels=self.tunnels,
            board=self.board,
        )
        front = Front(rooms, self._tools.tls)
        self.directory.checking.append(front.check)
        return front

    def _agent_ports(self) -> AgentPorts:
        return AgentPorts(
            ledger=self.ledger,
            hub=self.hub,
            performer=self.performer,
            logs=self.logs,
            confirm=self.store.confirm,
            clock=self.clock,
            secret=self._tools.secret,
            cluster=self.cluster,
            seen=self._shared.seen,
            environment=self.pinning,
            workspace=self.pins.path,
            report=self.checkpoints.report,
            used=self.usage.heard,
            tunnels=self.tunnels,
            base_url=addresses.base_url if (addresses := self._tools.addresses) else _no_prefix,
            services_said=self._services_said,
            level=self._level,
            owner_token=self._owner_token,
        )

    def _services_said(self, task: Task, key: RankKey, said: ServicesReported) -> None:
        idle = said.idle_seconds if said.HasField("idle_seconds") else None
        self.board.report(key, said.services, idle)
        asked = put_away(task, self.board.active_at(task), self.clock.now())
        if asked is not None:
            self._work.run(self._asked(task.id, asked))

    async def _owner_token(self, task: Task) -> str:
        return await container_tokens.make(self.directory, task, self.clock.now())

    async def _asked(self, task_id: int, event: ev.Event) -> None:
        await self.ledger.insist(task_id, event)

    async def _remove_container(self, task_id: int) -> None:
        await asyncio.to_thread(self._shared.remove, container_of(task_id))

    def _level(self, task: Task, number: int) -> Priority:
        """What a program may ask for is what its owner may. Counted afresh: groups change, and this is rare."""
        capacity = Capacity(self.cluster)
        rules = Submitting(
            self.ledger, self.store, self.directory, capacity, self.policy, self.clock
        )
        return rules.level(task, number)

    async def close(self, *, deposed: bool) -> None:
        """Answer what is being asked, then leave; programs run on. Deposed: what still wants to write fails first."""
        await self._work.close()
        self.timers.close()
        if deposed:
            await self.store.close()
        if self.proxy is not None:
            await self.proxy.close()
        await self._gate.close(NoLeader("this server is leaving; ask again"), _GRACE_SECONDS)
        self.hub.close()
        await self.checkpoints.close()
        await self.performer.close()
        await self.launcher.close()
        await self.workspaces.close()
        await self.store.close()
        self.standings.close()

    def _mint(self, key: RankKey) -> str:
        return run_tokens.make(self._tools.secret, key.task_id, key.run, key.rank)

    def _ring(self) -> None:
        self.scheduling.bell.ring()

    def _passed(self, seconds: float) -> None:
        self.metrics.passed(seconds)
        self.standings.show(self.cluster.nodes().values(), self.cluster.feed.version)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.timers.set(task)
        self.tunnels.follow(task)
        if container_tokens.over(before, task):
            self._work.run(container_tokens.revoke(self.directory, task))
        self.board.follow(task)
        self.scheduling.changed(task)
        self.interruptions.changed(before, task)
        self.standings.changed(before, task)
        measuring.count(self.metrics, before, task, self.clock.now())
        if task.run is not None and task.state is not TaskState.RUNNING:
            self.hub.forget(task.id, task.run.number)
            self.checkpoints.forget(task.id)
        if task.state is TaskState.FINISHED:
            self.performer.forget(task)
            self.pinning.forget(task.id)
            self.pins.finished(task)
        self.scheduling.bell.ring()

    def _goodput(self, task: Task) -> Goodput:
        history = self.interruptions.of(task.spec.resource.group)
        return goodput(self.checkpoints.recall(task), history, self.clock.now())

    def _tick(self, task_id: int, run: int) -> None:
        self._work.run(self._ticked(task_id, run))

    async def _ticked(self, task_id: int, run: int) -> None:
        self.timers.again(await self.ledger.insist(task_id, ev.Ticked(run)))


def _no_prefix(task_id: int, service: str) -> str:
    return "/"
