"""Carries out instructions: sends messages to agents, launches and kills ranks. Results arrive later as events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import structlog

from hai.client.connection.cancellation import cancelled_only_from_outside
from hai.v1 import agent_service_pb2 as pb
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.scheduling.binder import gpus_of
from hai_backend.domain.errors import HaiError
from hai_backend.domain.node import Node
from hai_backend.domain.task import Task
from hai_backend.launch.base import KillRequest, Launcher, RankKey, RankLaunch
from hai_backend.launch.request import RunRequest
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import instructions as do
from hai_backend.lifecycle.rules.transition import may_run

log = structlog.get_logger(__name__)


class Applier(Protocol):
    async def apply(self, task_id: int, event: ev.Event) -> Task: ...
    async def apply_when_stored(self, task_id: int, event: ev.Event) -> Task: ...


MakeToken = Callable[[RankKey], str]  # creates the token of a rank
FindNode = Callable[[str], Node | None]
Work = Callable[[], Awaitable[None]]
RequestOf = Callable[[Task], Awaitable[RunRequest]]
"""Raises HaiError or OSError when the task cannot be launched."""


async def _default_request(task: Task) -> RunRequest:
    return RunRequest()


class Executor:
    """Executes instructions. Launcher calls of a task run one after another, those of different tasks concurrently."""

    def __init__(
        self,
        launcher: Launcher,
        agents: ConnectedAgents,
        make_token: MakeToken,
        node: FindNode,
        request_of: RequestOf = _default_request,
    ) -> None:
        self._launcher = launcher
        self._agents = agents
        self._make_token = make_token
        self._node = node
        self._request_of = request_of
        self._order: dict[int, asyncio.Lock] = {}
        self._work: set[asyncio.Task[None]] = set()
        self.task_manager: Applier | None = None  # set by server.leader.components

    def perform(self, task: Task, instruction: do.Instruction) -> None:
        """Carry out an instruction, or start to do so in the background. Never blocks or raises."""
        match instruction:
            case do.Launch(run=run, ranks=ranks):
                self._start(task.id, partial(self._launch, task, run, ranks))
            case do.KillRanks(run=run, ranks=ranks):
                self._start(task.id, partial(self._kill, task, run, ranks))
            case do.StartPrograms():
                self._agents.send(task.id, instruction.run, instruction.ranks, start_message(task))
            case do.SuspendPrograms():
                suspend = pb.SuspendRequested(
                    save_within_seconds=instruction.save_within,
                    reason=task.run.reason if task.run else "",
                    wanted=instruction.by_owner,
                )
                self._send(task, instruction, pb.AttachResponse(suspend=suspend))
            case do.EndPrograms():
                end = pb.EndProgram(grace_seconds=instruction.grace, reason=instruction.reason)
                self._send(task, instruction, pb.AttachResponse(end=end))
            case do.SendWholeLifeState():
                state = pb.WholeLifeStateSet(value=instruction.value)
                self._send(task, instruction, pb.AttachResponse(whole_life_state=state))

    def _send(
        self,
        task: Task,
        to: do.SuspendPrograms | do.EndPrograms | do.SendWholeLifeState,
        message: pb.AttachResponse,
    ) -> None:
        self._agents.send(task.id, to.run, to.ranks, message)

    def _start(self, task_id: int, work: Work) -> None:
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
            request = await self._request_of(task)
        except (HaiError, OSError) as error:  # such as a full disk; no rank was started
            for rank in ranks:
                await self.task_manager.apply_when_stored(
                    task.id, ev.LaunchFailed(run, rank, str(error))
                )
            return
        await self._launcher.start([self._rank_launch(task, run, i, request) for i in ranks])
        await self.task_manager.apply_when_stored(task.id, ev.RunLaunched(run))

    def _rank_launch(self, task: Task, run: int, index: int, request: RunRequest) -> RankLaunch:
        assert task.run is not None
        key = RankKey(task.id, run, index)
        rank = task.run.ranks[index]
        gpus = gpus_of(task, rank, self._node(rank.node))
        return RankLaunch(key, rank.node, self._make_token(key), gpus, request)

    async def _kill(self, task: Task, run: int, ranks: tuple[int, ...]) -> None:
        assert task.run is not None
        preempted = bool(task.run.suspended_for)
        for index in ranks:
            rank, key = task.run.ranks[index], RankKey(task.id, run, index)
            exited = rank.exit_code is not None
            await self._launcher.kill(KillRequest(key, rank.node, may_run(rank), exited, preempted))

    async def write_checkpoints(self, key: RankKey) -> None:
        """See that the staged checkpoints of a rank are written to disk."""
        await self._launcher.write_checkpoints(key)

    def remove(self, task: Task) -> None:
        """Remove the lock of a finished task."""
        self._order.pop(task.id, None)

    async def close(self) -> None:
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)


def start_message(task: Task) -> pb.AttachResponse:
    """Return the message that starts the programs. It contains the addresses of the master and of all ranks."""
    assert task.run is not None
    ranks = task.run.ranks
    return pb.AttachResponse(
        go=pb.Go(
            master_address=ranks[0].address,
            master_port=ranks[0].free_port,
            addresses=[r.address for r in ranks],
        )
    )
