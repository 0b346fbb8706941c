"""What agents say becomes events of their tasks, or is handed to whoever keeps it."""

from __future__ import annotations

from typing import Any

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.inbox import Inbox, LogAppended, Received
from hai_backend.api.agents.protocols import AgentDeps
from hai_backend.api.nodes.reports import blame
from hai_backend.api.request import limits
from hai_backend.controllers.cluster.agents import Session
from hai_backend.controllers.tasks.checkpoints import Report
from hai_backend.domain.errors import HaiError, NoLeader, Unavailable
from hai_backend.domain.usage import Use, read_measurement
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev


class AgentReports:
    """One for all agents."""

    def __init__(self, ports: AgentDeps) -> None:
        self._p = ports

    async def receive(
        self, key: RankKey, request: pb.AttachRequest, session: Session, inbox: Inbox
    ) -> None:
        """Answer a heartbeat at once; append to the log; let the rest wait in the inbox until it is handled."""
        self._p.heard(key)
        kind = request.WhichOneof("message")
        if kind == "heartbeat":
            self._answer_heartbeat(key, request.heartbeat, session)
        elif inbox.closed:
            return
        elif kind == "log":
            await self._append(key, request.log, inbox)
        elif kind == "bar":
            self._p.logs.show(key, request.bar.text[: limits.SAID_CHARS])
        else:
            await inbox.put(request)

    async def take(self, key: RankKey, received: Received, session: Session) -> None:
        """Let one message count, and answer those that agents repeat until they are answered."""
        if isinstance(received, LogAppended):
            await self._p.confirm()  # the agent forgets what is acknowledged
            acknowledged = pb.LogAcknowledged(offset=received.size)
            session.send(pb.AttachResponse(log_acknowledged=acknowledged))
            return
        request = received
        match request.WhichOneof("message"):
            case "exited":
                await self._apply(key, _exited(key, request.exited))
                session.send(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            case "start_failed":
                reason = request.start_failed.reason[: limits.SAID_CHARS]
                await self._apply(key, ev.StartFailed(key.run, key.rank, reason))
                session.send(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            case "whole_life_state":
                value = request.whole_life_state.value
                await self._apply(key, ev.WholeLifeStateChanged(key.run, key.rank, value))
                session.send(pb.AttachResponse(whole_life_state=pb.WholeLifeStateSet(value=value)))
            case "priority":
                session.send(await self._prioritise(key, request.priority.priority))
            case "step_reported":
                self._agree(key, request.step_reported.step)
            case "checkpoint":
                self._p.report(key, _report(request.checkpoint))
            case "services":
                said = _bounded(request.services)
                self._p.services_said(await self._p.current(key), key, said)
            case "node_reported" if not request.node_reported.healthy:
                task, error = await self._p.current(key), request.node_reported.error
                await blame(self._p.cluster, self._p.task_manager, task, key, error)
            case kind if kind in _EVENTS:
                await self._apply(key, _EVENTS[kind](key, request))

    def _answer_heartbeat(self, key: RankKey, heartbeat: pb.Heartbeat, session: Session) -> None:
        if not heartbeat.unmeasured and (use := _use(heartbeat)) is not None:
            self._p.used(key, use)
        if heartbeat.number:
            answered = pb.HeartbeatAnswered(
                number=heartbeat.number, lease_renewed=self._p.may_continue(key)
            )
            session.send(pb.AttachResponse(heartbeat=answered))

    async def _append(self, key: RankKey, chunk: pb.LogChunk, inbox: Inbox) -> None:
        try:
            if not self._p.fresh():  # another leader may append to the same file by now
                raise NoLeader("this server was asleep, and cannot know whether it leads")
            size = self._p.logs.append(key, chunk.offset, chunk.data)
        except (
            Unavailable
        ) as error:  # so does a full disk end the stream; no heartbeat waits for that
            inbox.close(error)
        else:
            await inbox.put_log(size, len(chunk.data))

    async def _apply(self, key: RankKey, event: ev.Event) -> None:
        await self._p.task_manager.apply(key.task_id, event)

    async def _prioritise(self, key: RankKey, level: int) -> pb.AttachResponse:
        try:
            task = await self._p.current(key)
            wanted = self._p.level(task, level)
            await self._p.task_manager.set_priority(key.task_id, task.user, wanted)
            error = ""
        except HaiError as refused:
            error = str(refused)
        return pb.AttachResponse(priority=pb.PriorityAnswered(error=error))

    def _agree(self, key: RankKey, step: int) -> None:
        task = self._p.task_manager.unfinished().get(key.task_id)
        if task is None or task.run is None or task.run.number != key.run:
            return
        alive = (r.index for r in task.run.ranks if r.exit_code is None and not r.state.terminated)
        self._p.hub.step_reported(key, step, frozenset(alive))


def _exited(key: RankKey, exited: pb.ProgramExited) -> ev.ProgramExited:
    last = exited.last_lines[-limits.SAID_CHARS :]
    return ev.ProgramExited(key.run, key.rank, exited.exit_code, last, exited.yielded)


def _report(saved: pb.CheckpointSaved) -> Report:
    since = saved.program_seconds if saved.HasField("program_seconds") else None
    return Report(saved.seconds, saved.count or 1, since)


def _bounded(said: pb.ServicesReported) -> pb.ServicesReported:
    """As much as a task may have. Where browsers find a service is not the agent's to say."""
    del said.services[limits.SERVICES :]
    for status in said.services:
        status.url = ""
        status.message = status.message[: limits.SAID_CHARS]
        status.type = status.type[: limits.TAG_CHARS]
        status.name = status.name[: limits.TAG_CHARS]
    return said


def _use(beat: pb.Heartbeat) -> Use | None:
    gpu = beat.gpu_utilisation if beat.HasField("gpu_utilisation") else None
    return read_measurement(beat.cpus, beat.memory_bytes, gpu, beat.gpu_memory_bytes)


_EVENTS: dict[str | None, Any] = {
    "started": lambda key, request: ev.ProgramStarted(
        key.run, key.rank, request.started.environment_lock[: limits.LOCK_CHARS]
    ),
    "suspend_acknowledged": lambda key, _: ev.SuspendAcknowledged(key.run, key.rank),
    "yielded": lambda key, _: ev.Yielded(key.run, key.rank),
    "watchdog_fired": lambda key, request: ev.WatchdogFired(
        key.run, key.rank, request.watchdog_fired.silent_seconds
    ),
}
