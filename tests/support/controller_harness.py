"""The server's loops over a given store, with a fake launcher and a manual clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.launch import LaunchReconciler
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.scheduling.loop import SchedulingLoop
from hai_backend.controllers.tasks.dependencies import Dependencies
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import Instruction
from hai_backend.scheduler import Policy
from hai_backend.store.base import Store
from hai_backend.testing import ManualClock

_TIMEOUT_SECONDS = 20.0  # generous: a step of milliseconds may take seconds on a busy machine


class NoAccounts:
    """Accounts without quotas, inactive users and shares."""

    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]:
        return ()

    def inactive_users(self) -> frozenset[str]:
        return frozenset()

    def share_rows(self) -> tuple[ShareRow, ...]:
        return ()


@dataclass
class ControllerHarness:
    """The parts of a server that are neither gRPC nor processes, wired together."""

    store: Store
    launcher: FakeLauncher
    clock: ManualClock = field(default_factory=ManualClock)
    performed: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hub = ConnectedAgents()
        self.cluster = Cluster(self.store, self.clock, changed=lambda: None)
        self.executor = Executor(
            self.launcher, self.hub, lambda key: str(key), self.cluster.nodes().get
        )
        self.task_manager = TaskManager(
            self.store, self.clock, ChangeFeed(), perform=self._perform, changed=self._changed
        )
        self.executor.task_manager = self.task_manager
        self.cluster.suspend_on = self.task_manager.suspend_on
        self.scheduling = SchedulingLoop(
            self.task_manager, self.cluster, NoAccounts(), self.clock, Policy()
        )
        self.launching = LaunchReconciler(
            self.launcher, self.task_manager, self.cluster, self.executor
        )
        self.successors = Dependencies(self.task_manager, asyncio.ensure_future)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.scheduling.changed(task)
        self.successors.changed(before, task)

    def _perform(self, task: Task, instruction: Instruction) -> None:
        self.performed.append(instruction)
        self.executor.perform(task, instruction)

    async def start(self) -> None:
        await self.cluster.load()
        await self.task_manager.load()
        self.successors.load(self.task_manager.unfinished().values())
        self._loop = asyncio.ensure_future(self.launching.run())
        await self.launching.listed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loops run until `condition` returns true. Raises AssertionError after 20 seconds."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        await self.executor.close()

    async def attach_all(self, task_id: int) -> Task:
        """Attach all ranks of the task's run, as their agents would."""
        task = await self.task_manager.get(task_id)
        assert task.run is not None
        for rank in task.run.ranks:
            task = await self.task_manager.apply(
                task_id, ev.RankAttached(task.run.number, rank.index, "127.0.0.1", 4000)
            )
        return task

    async def leave(self, task_id: int) -> None:
        """End all agents of the task's run, and wait until the launcher has reported it."""
        task = await self.task_manager.get(task_id)
        assert task.run is not None
        for rank in task.run.ranks:
            self.launcher.terminate(RankKey(task_id, task.run.number, rank.index))
        before = task.revision
        await self.until(lambda: self._ended(task_id, before))

    def _ended(self, task_id: int, revision: int) -> bool:
        task = self.task_manager.unfinished().get(task_id)
        return task is None or task.waiting
