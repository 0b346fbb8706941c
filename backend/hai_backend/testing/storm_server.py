"""A server of the storm: the real ledger, loops and launcher, without gRPC and with the simplest of schedulers.

It dies as a process dies: whatever it was doing is not done, and what it has not written is lost. A dead server that
still wants to write is refused, as the epoch of a real one is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any, cast

from hai_backend.domain.errors import HaiError, Unavailable
from hai_backend.domain.task import Task, holders
from hai_backend.domain.user import User
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.transport import Transport
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest, Terms, run_request
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.feed import Feed
from hai_backend.loops.hub import Hub
from hai_backend.loops.launching import Launching
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.performing import Performer
from hai_backend.loops.successors import Successors
from hai_backend.loops.timers import Timers
from hai_backend.store.base import Store
from hai_backend.tasks import events as ev
from hai_backend.testing.virtual import LoopTimers

FENCE_SECONDS = 120.0
SETTINGS = ClusterSettings(
    namespace="default",
    instance="storm",
    server_addresses=("server:1",),
    agent_path="/opt/hai/agent",
    images={"default": "any/image:1"},
    default_uid=1000,
    fence_after=FENCE_SECONDS,
)
OPTIONS = Options(relist_seconds=60.0, lost_after=10.0)
_PASS_SECONDS = 1.0
_SUSPENSION_SECONDS = 45.0


class _Epoch:
    """The store of one server: it takes nothing from the dead."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.over = False

    def __getattr__(self, name: str) -> Any:
        if self.over:
            raise Unavailable("another server leads")
        return getattr(self._store, name)


class StormServer:
    """One life."""

    def __init__(self, store: Store, transport: Transport, seed: int) -> None:
        self._epoch = _Epoch(store)
        own = cast(Store, self._epoch)
        self._random = Random(seed)
        self.clock = LoopTimers()
        self.hub = Hub()
        self.launcher = KubernetesLauncher(transport, SETTINGS, OPTIONS, Random(seed))
        self.cluster = Cluster(own, self.clock, changed=lambda: None)
        self.performer = Performer(
            self.launcher, self.hub, str, self.cluster.nodes().get, self._describe
        )
        self.ledger = Ledger(
            own, self.clock, Feed(), perform=self.performer.perform, changed=self._changed
        )
        self.performer.ledger = self.ledger
        self.timers = Timers(self.clock, self._tick)
        self.launching = Launching(self.launcher, self.ledger, self.cluster, self.performer)
        self._work: set[asyncio.Task[None]] = set()
        self.successors = Successors(self.ledger, self._begin)

    @property
    def listening(self) -> bool:
        """Whether agents may attach."""
        return self.launching.listed.is_set() and not self._epoch.over

    async def start(self) -> None:
        """Begin; what needs the API server comes when it answers."""
        await self.cluster.load()
        await self.ledger.load()
        for task in self.ledger.unfinished().values():
            self.timers.set(task)
        self.successors.load(self.ledger.unfinished().values())
        self._begin(self.launching.run())
        self._begin(self._schedule())
        self._begin(self._suspend())

    async def die(self) -> None:
        """At once."""
        self._epoch.over = True
        self.timers.close()
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self.hub.close()
        await self.performer.close()
        await self.launcher.close()

    async def _describe(self, task: Task) -> RunRequest:
        return run_request(task, User(task.user, uid=1000), Terms(), self.cluster.nodes())

    def _changed(self, before: Task | None, task: Task) -> None:
        self.timers.set(task)
        self.successors.changed(before, task)
        if task.waiting and task.run is not None:
            self.hub.forget(task.id, task.run.number)

    async def _schedule(self) -> None:
        await self.launching.listed.wait()
        while True:
            for task in sorted(self.ledger.unfinished().values(), key=lambda task: task.id):
                if (
                    task.waiting
                    and not (task.held or task.awaited)
                    and task.not_before <= self.clock.now()
                ):
                    await self._place(task)
            await asyncio.sleep(_PASS_SECONDS)

    async def _place(self, task: Task) -> None:
        held = {rank.node for _, _, rank in holders(self.ledger.unfinished().values())}
        free = [n.name for n in self.cluster.nodes().values() if n.usable and n.name not in held]
        wanted = task.spec.resource.node_count
        if len(free) >= wanted:
            chosen = tuple(self._random.sample(sorted(free), wanted))
            placed = ev.RunPlaced(chosen, task.priority, "it fits")
            with suppress(HaiError):
                await self.ledger.apply(task.id, placed)

    async def _suspend(self) -> None:
        """Somebody else wants the nodes, now and then."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / _SUSPENSION_SECONDS))
            running = sorted(t.id for t in self.ledger.unfinished().values() if not t.waiting)
            if running:
                asked = ev.SuspendAsked("storm", "it must", for_task=1)
                with suppress(HaiError):
                    await self.ledger.apply(self._random.choice(running), asked)

    def _tick(self, task_id: int, run: int, deadline: float) -> None:
        self._begin(self.ledger.insist(task_id, ev.Ticked(run, deadline)))

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
