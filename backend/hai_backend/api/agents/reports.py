"""Handles the messages of agents: applies events to tasks, and records logs, checkpoints and measurements."""

from __future__ import annotations

from typing import Any

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.flow_control import Inbox, LogAppended, Received
from hai_backend.api.agents.service_deps import AgentDeps
from hai_backend.api.nodes.convert_gpus import gpus_from_proto
from hai_backend.api.protocols import Cluster
from hai_backend.api.request import limits
from hai_backend.controllers.cluster.agents import Session
from hai_backend.controllers.tasks.checkpoints import Report
from hai_backend.controllers.tasks.executor import Applier
from hai_backend.domain.errors import HaiError, NoLeader, Unavailable
from hai_backend.domain.task import Task
from hai_backend.domain.usage import Use, read_measurement
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev

_UNACKNOWLEDGED_BYTES = 256 * 1024
"""More bytes of a log than these are acknowledged by a message of their own.

So the spool of a chatty rank stays small, and that of an agent of an earlier release, which knows no other message."""

_MAX_NODE_FAILURES = 3
"""A task that reports every node as broken is broken itself. After so many runs its reports cordon no more nodes."""


class AgentReports:
    def __init__(self, deps: AgentDeps) -> None:
        self._deps = deps

    async def receive(
        self, key: RankKey, request: pb.AttachRequest, session: Session, inbox: Inbox
    ) -> None:
        """Answer a heartbeat or append to the log at once. Put other messages into the inbox."""
        self._deps.message_received(key)
        kind = request.WhichOneof("message")
        if kind == "heartbeat":
            self._answer_heartbeat(key, request.heartbeat, session)
            if request.heartbeat.HasField("log") and not inbox.closed:
                await self._append(key, request.heartbeat.log, inbox)
        elif inbox.closed:
            return
        elif kind == "log":
            await self._append(key, request.log, inbox)
        elif kind == "bar":
            self._deps.logs.show(key, request.bar.text[: limits.REPORT_CHARS])
        else:
            await inbox.put(request)

    async def handle(self, key: RankKey, received: Received, session: Session) -> None:
        """Apply one message of the inbox. Answer the messages that agents repeat until they are answered."""
        if isinstance(received, LogAppended):
            await self._deps.confirm()  # the agent drops acknowledged log bytes
            self._acknowledge(received.size, session)
            return
        request = received
        match request.WhichOneof("message"):
            case "exited":
                if request.exited.staged:  # the pod of the rank must still exist
                    await self._deps.executor.write_checkpoints(key)
                await self._apply(key, _exited(key, request.exited))
                session.send(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            case "start_failed":
                reason = request.start_failed.reason[: limits.REPORT_CHARS]
                await self._apply(key, ev.StartFailed(key.run, key.rank, reason))
                session.send(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            case "whole_life_state":
                value = request.whole_life_state.value
                await self._apply(key, ev.WholeLifeStateChanged(key.run, key.rank, value))
                session.send(pb.AttachResponse(whole_life_state=pb.WholeLifeStateSet(value=value)))
            case "priority":
                session.send(await self._set_priority(key, request.priority.priority))
            case "step_reported":
                self._report_step(key, request.step_reported.step)
            case "checkpoint":
                self._deps.record_checkpoint(key, _checkpoint_report(request.checkpoint))
                if request.checkpoint.staged:
                    await self._deps.executor.write_checkpoints(key)
            case "services":
                services = _truncate_services(request.services)
                self._deps.record_services(await self._deps.get_task(key), key, services)
            case "node_reported" if not request.node_reported.healthy:
                task, error = await self._deps.get_task(key), request.node_reported.error
                await cordon_reported_node(
                    self._deps.cluster, self._deps.task_manager, task, key, error
                )
            case kind if kind in _EVENTS:
                await self._apply(key, _EVENTS[kind](key, request))

    def _answer_heartbeat(self, key: RankKey, heartbeat: pb.Heartbeat, session: Session) -> None:
        if not heartbeat.unmeasured and (use := _use(heartbeat)) is not None:
            self._deps.record_use(key, use)
            if heartbeat.gpus:
                self._deps.record_gpus(key, gpus_from_proto(heartbeat.gpus[: limits.AGENT_GPUS]))
        if heartbeat.number:
            answer = pb.HeartbeatAnswered(
                number=heartbeat.number,
                lease_renewed=self._deps.may_continue(key),
                log_delay_seconds=self._deps.log_delay(key.task_id),
                log_offset=session.stored_log,
                return_within_seconds=self._deps.return_within(),
            )
            session.send(pb.AttachResponse(heartbeat=answer))

    def _acknowledge(self, size: int, session: Session) -> None:
        """Acknowledge the log with the answer to the next heartbeat, or at once if that is much."""
        session.stored_log = size
        if size - session.acknowledged_log > _UNACKNOWLEDGED_BYTES:
            session.acknowledged_log = size
            acknowledged = pb.LogAcknowledged(offset=size)
            session.send(pb.AttachResponse(log_acknowledged=acknowledged))

    async def _append(self, key: RankKey, chunk: pb.LogChunk, inbox: Inbox) -> None:
        try:
            if not self._deps.is_lease_fresh():  # another leader may append to the same file
                raise NoLeader("this server was asleep, and cannot know whether it leads")
            size = self._deps.logs.append(key, chunk.offset, chunk.data)
        except Unavailable as error:  # such as a full disk; the error ends the stream
            inbox.close(error)
        else:
            await inbox.put_log(size, len(chunk.data))

    async def _apply(self, key: RankKey, event: ev.Event) -> None:
        await self._deps.task_manager.apply(key.task_id, event)

    async def _set_priority(self, key: RankKey, number: int) -> pb.AttachResponse:
        try:
            task = await self._deps.get_task(key)
            level = self._deps.check_level(task, number)
            await self._deps.task_manager.set_priority(key.task_id, task.user, level)
            error = ""
        except HaiError as refusal:
            error = str(refusal)
        return pb.AttachResponse(priority=pb.PriorityAnswered(error=error))

    def _report_step(self, key: RankKey, step: int) -> None:
        """Report the step that a rank has reached, so that all living ranks agree on the step to yield at."""
        task = self._deps.task_manager.unfinished().get(key.task_id)
        if task is None or task.run is None or task.run.number != key.run:
            return
        alive = (r.index for r in task.run.ranks if r.exit_code is None and not r.state.terminated)
        self._deps.connected_agents.step_reported(key, step, frozenset(alive))


def _exited(key: RankKey, exited: pb.ProgramExited) -> ev.ProgramExited:
    last_lines = exited.last_lines[-limits.REPORT_CHARS :]
    return ev.ProgramExited(key.run, key.rank, exited.exit_code, last_lines, exited.yielded)


def _checkpoint_lost(key: RankKey, lost: pb.CheckpointLost) -> ev.CheckpointLost:
    resumed = lost.resumed_step if lost.HasField("resumed_step") else None
    node = _to_line(lost.node) if lost.node else ""
    return ev.CheckpointLost(key.run, key.rank, lost.step, node, resumed)


def _checkpoint_report(saved: pb.CheckpointSaved) -> Report:
    program_seconds = saved.program_seconds if saved.HasField("program_seconds") else None
    step = saved.step if saved.step >= 0 else None
    return Report(saved.seconds, saved.count or 1, program_seconds, step)


def _truncate_services(reported: pb.ServicesReported) -> pb.ServicesReported:
    """Truncate a report to the limits of a task, and clear URLs, which the server itself sets."""
    del reported.services[limits.SERVICES :]
    for status in reported.services:
        status.url = ""
        status.message = status.message[: limits.REPORT_CHARS]
        status.type = status.type[: limits.TAG_CHARS]
        status.name = status.name[: limits.TAG_CHARS]
    return reported


def _use(heartbeat: pb.Heartbeat) -> Use | None:
    gpu = heartbeat.gpu_utilisation if heartbeat.HasField("gpu_utilisation") else None
    return read_measurement(heartbeat.cpus, heartbeat.memory_bytes, gpu, heartbeat.gpu_memory_bytes)


_EVENTS: dict[str | None, Any] = {
    "started": lambda key, request: ev.ProgramStarted(
        key.run, key.rank, request.started.environment_lock[: limits.LOCK_CHARS]
    ),
    "suspend_acknowledged": lambda key, _: ev.SuspendAcknowledged(key.run, key.rank),
    "save_progress": lambda key, request: ev.SaveProgressed(
        key.run,
        key.rank,
        request.save_progress.saved_bytes,
        request.save_progress.total_bytes,
    ),
    "checkpoint_lost": lambda key, request: _checkpoint_lost(key, request.checkpoint_lost),
    "checkpoint_loaded": lambda key, request: ev.CheckpointLoaded(
        key.run, key.rank, request.checkpoint_loaded.seconds
    ),
    "yielded": lambda key, _: ev.Yielded(key.run, key.rank),
    "watchdog_fired": lambda key, request: ev.WatchdogFired(
        key.run, key.rank, request.watchdog_fired.silent_seconds
    ),
}


async def cordon_reported_node(
    cluster: Cluster, task_manager: Applier, task: Task, key: RankKey, error: str
) -> None:
    """Cordon the node that a program reports as broken, then end the run, which starts again elsewhere.

    The node is cordoned first, so that the next run cannot get it.
    """
    assert task.run is not None
    description = _to_line(error)
    node = cluster.nodes().get(task.run.ranks[key.rank].node)
    is_credible = task.node_failure_count < _MAX_NODE_FAILURES
    if node is not None and not node.cordoned and is_credible:
        reason = f"reported by task {task.id}: {description}"
        await cluster.set_cordoned(node.name, True, reason[: limits.REASON_CHARS], by="agent")
    await task_manager.apply(task.id, ev.NodeReported(key.run, key.rank, description))


def _to_line(text: str) -> str:
    """Return a text of a program as one printable line of limited length."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[: limits.REASON_CHARS] or "no details given"
