"""Performs instructions: tells agents, starts and ends ranks. Results come back as events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import structlog

from hai.client.cancellation import cancelled_only_from_outside
from hai.v1 import agent_service_pb2 as pb
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.scheduling.binder import gpus_of
from hai_backend.domain.errors import HaiError
from hai_backend.domain.node import Node
from hai_backend.domain.task import Task
from hai_backend.launch.base import Launcher, RankKey, RankLaunch
from hai_backend.launch.request import RunRequest
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import instructions as do
from hai_backend.lifecycle.transition import may_run

log = structlog.get_logger(__name__)


class Applier(Protocol):
    async def apply(self, task_id: int, event: ev.Event) -> Task: ...
    async def insist(self, task_id: int, event: ev.Event) -> Task: ...


Mint = Callable[[RankKey], str]  # makes the token of a rank
FindNode = Callable[[str], Node | None]
Work = Callable[[], Awaitable[None]]
Describe = Callable[[Task], Awaitable[RunRequest]]
"""Raises HaiError or OSError when it cannot be launched."""


async def _nothing_asked(task: Task) -> RunRequest:
    return RunRequest()


class Executor:
    """Launcher calls of one task keep their order; those of different tasks run side by side."""

    def __init__(
        self,
        launcher: Launcher,
        hub: ConnectedAgents,
        mint: Mint,
        node: FindNode,
        describe: Describe = _nothing_asked,
    ) -> None:
        self._launcher = launcher
        self._hub = hub
        self._mint = mint
        self._node = node
        self._describe = describe
        self._order: dict[int, asyncio.Lock] = {}
        self._work: set[asyncio.Task[None]] = set()
        self.task_manager: Applier | None = (
            None  # set once by server.term.components: the two know each other
        )

    def perform(self, task: Task, instruction: do.Instruction) -> None:
        """Do it, or begin to; never blocks, never raises."""
        match instruction:
            case do.Launch(run=run, ranks=ranks):
                self._begin(task.id, partial(self._launch, task, run, ranks))
            case do.KillRanks(run=run, ranks=ranks):
                self._begin(task.id, partial(self._kill, task, run, ranks))
            case do.StartPrograms():
                self._hub.tell(task.id, instruction.run, instruction.ranks, go(task))
            case do.SuspendPrograms():
                asked = pb.SuspendRequested(
                    save_within_seconds=instruction.save_within,
                    reason=task.run.reason if task.run else "",
                    wanted=instruction.by_owner,
                )
                self._tell(task, instruction, pb.AttachResponse(suspend=asked))
            case do.EndPrograms():
                end = pb.EndProgram(grace_seconds=instruction.grace, reason=instruction.reason)
                self._tell(task, instruction, pb.AttachResponse(end=end))
            case do.SendWholeLifeState():
                state = pb.WholeLifeStateSet(value=instruction.value)
                self._tell(task, instruction, pb.AttachResponse(whole_life_state=state))

    def _tell(
        self,
        task: Task,
        to: do.SuspendPrograms | do.EndPrograms | do.SendWholeLifeState,
        message: pb.AttachResponse,
    ) -> None:
        self._hub.tell(task.id, to.run, to.ranks, message)

    def _begin(self, task_id: int, work: Work) -> None:
        running = asyncio.ensure_future(self._in_order(task_id, work))
        self._work.add(running)
        running.add_done_callback(self._work.discard)

    async def _in_order(self, task_id: int, work: Work) -> None:
        async with self._order.setdefault(task_id, asyncio.Lock()):
            try:
                with cancelled_only_from_outside("an instruction"):
                    await work()
            except Exception:
                log.exception(
                    "an instruction failed; it is derived again after a restart", task=task_id
                )

    async def _launch(self, task: Task, run: int, ranks: tuple[int, ...]) -> None:
        assert task.run is not None
        assert self.task_manager is not None
        try:
            request = await self._describe(task)
        except (HaiError, OSError) as error:  # a full disk, say: nothing was started
            for rank in ranks:
                await self.task_manager.insist(task.id, ev.LaunchFailed(run, rank, str(error)))
            return
        await self._launcher.start([self._rank_launch(task, run, i, request) for i in ranks])
        await self.task_manager.insist(task.id, ev.RunLaunched(run))

    def _rank_launch(self, task: Task, run: int, index: int, request: RunRequest) -> RankLaunch:
        assert task.run is not None
        key = RankKey(task.id, run, index)
        rank = task.run.ranks[index]
        gpus = gpus_of(task, rank, self._node(rank.node))
        return RankLaunch(key, rank.node, self._mint(key), gpus, request)

    async def _kill(self, task: Task, run: int, ranks: tuple[int, ...]) -> None:
        assert task.run is not None
        preempted = bool(task.run.suspended_for)
        for index in ranks:
            rank, key = task.run.ranks[index], RankKey(task.id, run, index)
            exited = rank.exit_code is not None
            await self._launcher.kill(
                key, rank.node, ran=may_run(rank), exited=exited, preempted=preempted
            )

    def forget(self, task: Task) -> None:
        """The task is finished."""
        self._order.pop(task.id, None)

    async def close(self) -> None:
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)


def go(task: Task) -> pb.AttachResponse:
    """All ranks have attached: who the master is and where everybody stands."""
    assert task.run is not None
    ranks = task.run.ranks
    return pb.AttachResponse(
        go=pb.Go(
            master_address=ranks[0].address,
            master_port=ranks[0].free_port,
            addresses=[r.address for r in ranks],
        )
    )
