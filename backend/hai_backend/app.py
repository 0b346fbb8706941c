"""The server as one value: constructs every part, joins them, starts and stops them in order."""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import json
import os
import secrets
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog

from hai_backend.auth import run_tokens
from hai_backend.auth.directory import Directory
from hai_backend.config import Settings
from hai_backend.domain.errors import Conflict
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task, TaskState
from hai_backend.domain.user import TokenScope
from hai_backend.gateway import open_gateway
from hai_backend.launch.base import Launcher, RankKey
from hai_backend.logs.store import LogStore
from hai_backend.loops import learning, measuring
from hai_backend.loops.checkpoints import Checkpoints
from hai_backend.loops.clock import Clock, SystemClock
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.feed import Feed
from hai_backend.loops.hub import Hub
from hai_backend.loops.interruptions import Interruptions
from hai_backend.loops.launching import Launching
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.performing import Performer
from hai_backend.loops.recording import Recording
from hai_backend.loops.scheduling import Scheduling
from hai_backend.loops.timers import Timers
from hai_backend.metrics.prometheus import Metrics, MetricsServer
from hai_backend.sched import Policy
from hai_backend.services.agent_service import AgentPorts, AgentService
from hai_backend.services.assemble import Parts
from hai_backend.services.capacity import Capacity
from hai_backend.services.server import Listening
from hai_backend.services.submitting import Submitting
from hai_backend.store.base import Store
from hai_backend.tasks import events as ev
from hai_backend.tasks.goodput import Goodput, goodput
from hai_backend.tasks.limits import Limits

log = structlog.get_logger(__name__)


class App:
    """`start` returns when the server answers; `address` is then where."""

    def __init__(
        self, settings: Settings, store: Store, launcher: Launcher, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.store = store
        self.launcher = launcher
        self.clock = clock or SystemClock()
        self.secret = _secret(settings.home)
        self.metrics = Metrics()
        self.standings = measuring.Standings(self.metrics)
        self.directory = Directory(store, changed=self._ring)
        self.hub = Hub()
        self.logs = LogStore(settings.home / "logs", settings.log_bytes_per_rank)
        self.cluster = Cluster(store, self.clock, changed=self._ring)
        self.performer = Performer(launcher, self.hub, self._mint, self.cluster.nodes().get)
        self.timers = Timers(self.clock, self._tick)
        self.checkpoints = Checkpoints(self.clock)
        self.interruptions = Interruptions()
        self.ledger = Ledger(
            store,
            self.clock,
            Feed(),
            perform=self.performer.perform,
            changed=self._changed,
            limits=Limits(build_within=settings.build_within),
            recall=self.checkpoints.recall,
        )
        self.performer.ledger = self.checkpoints.ledger = self.ledger
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
        self.address = ""
        self._gateway: Listening | None = None
        self._metrics_server: MetricsServer | None = None
        self._loops: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the store, load, listen, and let the loops run."""
        await self.store.open()
        await self.directory.load()
        await self._first_user()
        await self.cluster.load()
        await self.ledger.load()
        if self.settings.metrics_port:
            self._metrics_server = MetricsServer(self.metrics, self.settings.metrics_port)
        self.interruptions.load(self.ledger.unfinished().values())
        for task in self.ledger.unfinished().values():
            self.timers.set(task)
            self.standings.changed(None, task)
        await self._listed(self._run(self.launching.run()))
        self._gateway = await open_gateway(self.settings, self._parts())
        self.address = self._gateway.address
        self._leave_word()
        self._run(self.scheduling.run())
        self._run(learning.recall(self.store, self.scheduling.learn))
        log.info("listening", address=self.address, unfinished=len(self.ledger.unfinished()))

    async def _listed(self, launching: asyncio.Task[None]) -> None:
        """Wait for the launcher's list: before it, nobody knows which nodes and ranks exist."""
        listed = asyncio.ensure_future(self.launching.listed.wait())
        await asyncio.wait({launching, listed}, return_when=asyncio.FIRST_COMPLETED)
        if not listed.done():
            listed.cancel()
            launching.result()

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
            goodput=self._goodput,
            agents=AgentService(self._agent_ports()),
            policy=self.policy,
            name=self.settings.cluster,
            launcher=self.launcher.name,
            observe=self.metrics.call,
        )

    def _agent_ports(self) -> AgentPorts:
        return AgentPorts(
            ledger=self.ledger,
            hub=self.hub,
            performer=self.performer,
            logs=self.logs,
            clock=self.clock,
            secret=self.secret,
            cluster=self.cluster,
            checkpoints=self.settings.home / "checkpoints",
            report=self.checkpoints.report,
            level=self._level,
        )

    def _level(self, task: Task, number: int) -> Priority:
        """What a program may ask for is what its owner may. Counted afresh: groups change, and this is rare."""
        capacity = Capacity(self.cluster)
        rules = Submitting(
            self.ledger, self.store, self.directory, capacity, self.policy, self.clock
        )
        return rules.level(task, number)

    def _leave_word(self) -> None:
        """Where agents, `hai up` and `hai down` find this server."""
        home, port = self.settings.home, self.address.rpartition(":")[2]
        where = {"address": self.address, "pid": os.getpid(), "ca": self.settings.tls_cert}
        _write_private(home / "server.json", json.dumps(where).encode())
        _write_private(home / "port.json", port.encode())

    async def stop(self) -> None:
        """Answer what is being asked, then leave. Programs run on; `hai down` ends them too."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self.timers.close()
        self.hub.close()
        if self._gateway is not None:
            await self._gateway.stop(grace=1.0)
        if self._metrics_server is not None:
            self._metrics_server.close()
        await self.checkpoints.close()
        await self.performer.close()
        await self.launcher.close()
        await self.store.close()

    async def _first_user(self) -> None:
        """The first start makes an admin and leaves the token where only its owner can read it."""
        name = self.settings.admin or getpass.getuser()
        path, now = self.settings.home / "admin.token", self.clock.now()
        secret = await self.directory.bootstrap(name, now)
        if secret is None and not path.exists():  # a crash came between the token and its file
            made = await self.directory.create_token(name, TokenScope.ALL, now, description="admin")
            secret = made[1]
        if secret is not None:
            _write_private(path, secret.encode())

    def _mint(self, key: RankKey) -> str:
        return run_tokens.make(self.secret, key.task_id, key.run, key.rank)

    def _ring(self) -> None:
        self.scheduling.bell.ring()

    def _passed(self, seconds: float) -> None:
        self.metrics.passed(seconds)
        self.standings.show(self.cluster.nodes().values(), self.cluster.feed.version)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.timers.set(task)
        self.scheduling.changed(task)
        self.interruptions.changed(before, task)
        self.standings.changed(before, task)
        measuring.count(self.metrics, before, task, self.clock.now())
        if task.run is not None and task.state is not TaskState.RUNNING:
            self.hub.forget(task.id, task.run.number)
            self.checkpoints.forget(task.id)
        if task.state is TaskState.FINISHED:
            self.performer.forget(task)
        self.scheduling.bell.ring()

    def _goodput(self, task: Task) -> Goodput:
        history = self.interruptions.of(task.spec.resource.group)
        return goodput(self.checkpoints.recall(task), history, self.clock.now())

    def _tick(self, task_id: int, run: int) -> None:
        self._run(self._ticked(task_id, run))

    async def _ticked(self, task_id: int, run: int) -> None:
        self.timers.again(await self.ledger.insist(task_id, ev.Ticked(run)))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._loops.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._loops.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a loop ended", error=repr(task.exception()))


def _secret(home: Path) -> bytes:
    """The key of run tokens: made once, readable by the server's user only."""
    path = home / "run-token.key"
    if not path.exists():
        _write_private(path, secrets.token_bytes(32))
    return path.read_bytes()


def _write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, durable, and for the server's own user only."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def claim(home: Path) -> int:
    """Hold this home for one server; the lock goes with the process. Raises Conflict naming the holder."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Conflict(
            f"a server already runs in {home}; `hai down` stops it", reason="RUNNING"
        ) from error
    return descriptor
