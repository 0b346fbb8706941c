"""The loops over the memory store, a fake launcher and a clock turned by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hai_backend.domain.snapshot import QuotaRow, ShareRow
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.feed import Feed
from hai_backend.loops.hub import Hub
from hai_backend.loops.launching import Launching
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.performing import Performer
from hai_backend.loops.scheduling import Scheduling
from hai_backend.loops.successors import Successors
from hai_backend.sched import Policy
from hai_backend.store.base import Store
from hai_backend.tasks import events as ev
from hai_backend.tasks.instructions import Instruction
from hai_backend.testing import ManualClock

_PATIENCE_SECONDS = 20.0  # a busy machine may take long for what takes milliseconds


class Nobody:
    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]:
        return ()

    def inactive_users(self) -> frozenset[str]:
        return frozenset()

    def share_rows(self) -> tuple[ShareRow, ...]:
        return ()


@dataclass
class World:
    """Everything but gRPC and processes."""

    store: Store
    launcher: FakeLauncher
    clock: ManualClock = field(default_factory=ManualClock)
    performed: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hub = Hub()
        self.cluster = Cluster(self.store, self.clock, changed=lambda: None)
        self.performer = Performer(
            self.launcher, self.hub, lambda key: str(key), self.cluster.nodes().get
        )
        self.ledger = Ledger(
            self.store, self.clock, Feed(), perform=self._perform, changed=self._changed
        )
        self.performer.ledger = self.ledger
        self.cluster.suspend_on = self.ledger.suspend_on
        self.scheduling = Scheduling(self.ledger, self.cluster, Nobody(), self.clock, Policy())
        self.launching = Launching(self.launcher, self.ledger, self.cluster, self.performer)
        self.successors = Successors(self.ledger, asyncio.ensure_future)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.scheduling.changed(task)
        self.successors.changed(before, task)

    def _perform(self, task: Task, instruction: Instruction) -> None:
        self.performed.append(instruction)
        self.performer.perform(task, instruction)

    async def start(self) -> None:
        await self.cluster.load()
        await self.ledger.load()
        self.successors.load(self.ledger.unfinished().values())
        self._loop = asyncio.ensure_future(self.launching.run())
        await self.launching.listed.wait()

    async def until(self, true: Callable[[], bool]) -> None:
        """Let the loops run until something is so."""
        late = time.monotonic() + _PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < late, "it never came true"
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        await self.performer.close()

    async def attach_all(self, task_id: int) -> Task:
        """What agents do: attach, start."""
        task = await self.ledger.get(task_id)
        assert task.run is not None
        for rank in task.run.ranks:
            task = await self.ledger.apply(
                task_id, ev.RankAttached(task.run.number, rank.index, "127.0.0.1", 4000)
            )
        return task

    async def leave(self, task_id: int) -> None:
        """Agents end, and the launcher sees it."""
        task = await self.ledger.get(task_id)
        assert task.run is not None
        for rank in task.run.ranks:
            self.launcher.end(RankKey(task_id, task.run.number, rank.index))
        before = task.revision
        await self.until(lambda: self._ended(task_id, before))

    def _ended(self, task_id: int, revision: int) -> bool:
        task = self.ledger.unfinished().get(task_id)
        return task is None or task.waiting
