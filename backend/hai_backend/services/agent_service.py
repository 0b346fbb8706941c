"""The server's side of Attach: what agents say becomes events of tasks, what they must hear waits in their session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import structlog

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.auth import run_tokens, tokens
from hai_backend.domain.errors import Conflict, HaiError, Unauthenticated, Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared import Seen, checkpoints_of, container_of
from hai_backend.domain.spec import ServiceSpec, TaskType
from hai_backend.domain.task import RunState, Task
from hai_backend.domain.usage import Use, measured
from hai_backend.launch.base import RankKey
from hai_backend.loops import program
from hai_backend.loops.checkpoints import Report
from hai_backend.loops.clock import Clock
from hai_backend.loops.hub import Hub, Session
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.performing import Performer
from hai_backend.loops.tunnels import Tunnels
from hai_backend.services.blaming import blame
from hai_backend.services.carrying import carry
from hai_backend.services.containers import JUPYTER, is_main
from hai_backend.services.environment_pinning import EnvironmentPinning
from hai_backend.services.ports import Cluster
from hai_backend.tasks import events as ev
from hai_backend.tasks import greeting

log = structlog.get_logger(__name__)

_STORE_AWAY_SECONDS = 1.0
_HELLO_SECONDS = 30.0  # before it nobody knows who holds the stream


class Logs(Protocol):
    def append(self, key: RankKey, offset: int, data: bytes) -> int: ...
    def size(self, key: RankKey) -> int: ...


async def _no_token(task: Task) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class AgentPorts:
    """What the service needs of the rest of the server."""

    ledger: Ledger
    hub: Hub
    performer: Performer
    logs: Logs
    confirm: Callable[[], Awaitable[None]]  # raises Deposed when another server leads
    clock: Clock
    secret: bytes
    cluster: Cluster
    seen: Seen
    environment: EnvironmentPinning
    workspace: Callable[[Task], str]  # where its program begins; empty: nobody said
    report: Callable[[RankKey, Report], None]  # its program has a checkpoint
    used: Callable[[RankKey, Use], None]  # it was measured
    tunnels: Tunnels
    base_url: Callable[[int, str], str]  # of a service of a task, as browsers see it
    services_said: Callable[[Task, RankKey, pb.ServicesReported], None]
    level: Callable[[Task, int], Priority]  # a level that a program asks for; raises Invalid
    owner_token: Callable[[Task], Awaitable[str]] = _no_token  # of a dev container's owner


class AgentService(rpc.AgentServiceServicer):
    """Runs one coroutine that reads and one that writes per attached rank."""

    def __init__(self, ports: AgentPorts) -> None:
        self._p = ports

    async def Attach(
        self,
        request_iterator: AsyncIterator[pb.AttachRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.AttachResponse]:
        hello = await _hello(request_iterator)
        key = RankKey(hello.task_id, hello.run, hello.rank)
        self._check_token(key, context)
        session = Session()
        self._p.hub.enter(key, session)
        reader = asyncio.ensure_future(self._read(key, hello, request_iterator, session))
        try:
            yield await self._welcome(key, started=hello.started)
            while (message := await session.next()) is not None:
                yield message
            if session.error is not None:
                raise session.error
        finally:
            reader.cancel()
            self._p.hub.leave(key, session)

    async def Carry(
        self,
        request_iterator: AsyncIterator[pb.CarryRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.CarryResponse]:
        hello = await _carry_hello(request_iterator)
        key = RankKey(hello.task_id, hello.run, hello.rank)
        self._check_token(key, context)
        tunnel = self._p.tunnels.called_back(key, hello.tunnel)
        async for message in carry(hello, tunnel, request_iterator):
            yield message

    def _check_token(self, key: RankKey, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        sent = dict(context.invocation_metadata() or ()).get("authorization")
        secret = tokens.bearer(str(sent) if sent else None)
        if not run_tokens.matches(self._p.secret, key.task_id, key.run, key.rank, secret):
            raise Unauthenticated(f"the run token is not that of rank {key}")

    async def _current(self, key: RankKey) -> Task:
        """The task, if this rank may still speak for it. Raises Conflict FENCED."""
        task = await self._p.ledger.get(key.task_id)
        run = task.run
        current = run is not None and run.number == key.run and run.state is not RunState.ENDED
        if (
            not current
            or run is None
            or key.rank >= len(run.ranks)
            or run.ranks[key.rank].state.gone
        ):
            raise Conflict(f"rank {key} is over: end its program and leave", reason="FENCED")
        return task

    async def _welcome(self, key: RankKey, *, started: bool) -> pb.AttachResponse:
        task = await self._current(key)
        assert task.run is not None
        rank = task.run.ranks[key.rank]
        spec = task.spec.spec
        checkpoints = self._p.seen(checkpoints_of(task.id))
        welcome = pb.AgentWelcome(
            argv=program.argv(task, rank),
            environments=self._p.environment.home(task.user)
            | program.variables(
                task, task.run, rank, self._p.cluster.nodes().get(rank.node), checkpoints
            ),
            workspace=self._p.workspace(task) or self._home_of(task),
            log_offset=self._p.logs.size(key),
            watchdog_seconds=task.spec.options.watchdog_time,
            suspend_signal=task.spec.options.suspend_signal,
            whole_life_state=task.whole_life_state,
            git_remote_repo=spec.git_remote_repo,
            git_target_revision=spec.git_target_revision,
            services=[self._service(task, s) for s in task.spec.services if key.rank in s.rank],
            container=task.spec.task_type is TaskType.JUPYTER,
            owner_token="" if started else await self._p.owner_token(task),
            environment=await self._p.environment(task),
        )
        return pb.AttachResponse(welcome=welcome)

    def _home_of(self, task: Task) -> str:
        """A dev container that clones nothing works in a directory of its own, which stays."""
        own = task.spec.task_type is TaskType.JUPYTER and not task.spec.spec.git_remote_repo
        return self._p.seen(container_of(task.id)) if own else ""

    def _service(self, task: Task, service: ServiceSpec) -> pb.AgentServiceSpec:
        return pb.AgentServiceSpec(
            name=service.name,
            type=service.type.value,
            port=0 if service.name == JUPYTER else service.port,
            startup_script=service.startup_script,
            base_url=self._p.base_url(task.id, "" if is_main(task, service) else service.name),
        )

    async def _read(
        self,
        key: RankKey,
        hello: pb.AgentHello,
        requests: AsyncIterator[pb.AttachRequest],
        session: Session,
    ) -> None:
        """Take the agent's messages until it goes or breaks a rule; then the writer ends too."""
        try:
            await self._greet(key, hello)
            async for request in requests:
                await self._take(key, request, session)
        except HaiError as error:
            log.warning("an agent was cut off", rank=str(key), why=str(error))
            session.error = error
            if isinstance(error, Unavailable):  # it comes back with the same message at once
                await asyncio.sleep(_STORE_AWAY_SECONDS)
        finally:
            session.close()

    async def _greet(self, key: RankKey, hello: pb.AgentHello) -> None:
        task = await self._current(key)
        now = self._p.clock.now()
        for instruction in greeting(task, key.rank, started=hello.started, now=now):
            self._p.performer.perform(task, instruction)
        attached = ev.RankAttached(key.run, key.rank, hello.address, hello.free_port)
        await self._p.ledger.apply(key.task_id, attached)

    async def _take(self, key: RankKey, request: pb.AttachRequest, session: Session) -> None:
        match request.WhichOneof("message"):
            case "log":
                size = self._p.logs.append(key, request.log.offset, request.log.data)
                await self._p.confirm()  # the agent forgets what is acknowledged
                session.tell(pb.AttachResponse(log_acknowledged=pb.LogAcknowledged(offset=size)))
            case "exited":
                await self._apply(key, _exited(key, request.exited))
                session.tell(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            case "start_failed":
                reason = request.start_failed.reason
                await self._apply(key, ev.StartFailed(key.run, key.rank, reason))
                session.tell(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            case "whole_life_state":
                value = request.whole_life_state.value
                await self._apply(key, ev.WholeLifeStateChanged(key.run, key.rank, value))
                session.tell(pb.AttachResponse(whole_life_state=pb.WholeLifeStateSet(value=value)))
            case "priority":
                session.tell(await self._prioritise(key, request.priority.priority))
            case "step_reported":
                self._agree(key, request.step_reported.step)
            case "heartbeat":
                if (use := _use(request.heartbeat)) is not None:
                    self._p.used(key, use)
            case "checkpoint":
                self._p.report(key, _report(request.checkpoint))
            case "services":
                self._p.services_said(await self._current(key), key, request.services)
            case "node_reported" if not request.node_reported.healthy:
                task, error = await self._current(key), request.node_reported.error
                await blame(self._p.cluster, self._p.ledger, task, key, error)
            case kind if kind in _EVENTS:
                await self._apply(key, _EVENTS[kind](key, request))

    async def _apply(self, key: RankKey, event: ev.Event) -> None:
        await self._p.ledger.apply(key.task_id, event)

    async def _prioritise(self, key: RankKey, level: int) -> pb.AttachResponse:
        try:
            task = await self._current(key)
            wanted = self._p.level(task, level)
            await self._p.ledger.set_priority(key.task_id, task.user, wanted)
            error = ""
        except HaiError as refused:
            error = str(refused)
        return pb.AttachResponse(priority=pb.PriorityAnswered(error=error))

    def _agree(self, key: RankKey, step: int) -> None:
        task = self._p.ledger.unfinished().get(key.task_id)
        if task is None or task.run is None or task.run.number != key.run:
            return
        alive = (r.index for r in task.run.ranks if r.exit_code is None and not r.state.gone)
        self._p.hub.step_reported(key, step, frozenset(alive))


async def _carry_hello(requests: AsyncIterator[pb.CarryRequest]) -> pb.CarryHello:
    try:
        async with asyncio.timeout(_HELLO_SECONDS):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None or first.WhichOneof("message") != "hello":
        raise Unauthenticated("the first message of a tunnel's stream must be hello")
    return first.hello


async def _hello(requests: AsyncIterator[pb.AttachRequest]) -> pb.AgentHello:
    """Who speaks. Raises Unauthenticated; Unavailable, after which agents try again, when nobody does for long."""
    try:
        async with asyncio.timeout(_HELLO_SECONDS):
            first = await anext(requests, None)
    except TimeoutError:
        raise Unavailable(f"no hello within {_HELLO_SECONDS:g} s; attach again") from None
    if first is None or first.WhichOneof("message") != "hello":
        raise Unauthenticated("the first message of an agent must be hello")
    return first.hello


def _exited(key: RankKey, exited: pb.ProgramExited) -> ev.ProgramExited:
    return ev.ProgramExited(key.run, key.rank, exited.exit_code, exited.last_lines, exited.yielded)


def _report(saved: pb.CheckpointSaved) -> Report:
    since = saved.program_seconds if saved.HasField("program_seconds") else None
    return Report(saved.seconds, saved.count or 1, since)


def _use(beat: pb.Heartbeat) -> Use | None:
    gpu = beat.gpu_utilisation if beat.HasField("gpu_utilisation") else None
    return measured(beat.cpus, beat.memory_bytes, gpu, beat.gpu_memory_bytes)


_EVENTS: dict[str | None, Any] = {
    "started": lambda key, request: ev.ProgramStarted(
        key.run, key.rank, request.started.environment_lock
    ),
    "suspend_acknowledged": lambda key, _: ev.SuspendAcknowledged(key.run, key.rank),
    "yielded": lambda key, _: ev.Yielded(key.run, key.rank),
    "watchdog_fired": lambda key, request: ev.WatchdogFired(
        key.run, key.rank, request.watchdog_fired.silent_seconds
    ),
    "start_failed": lambda key, request: ev.StartFailed(
        key.run, key.rank, request.start_failed.reason
    ),
}
