"""Puts the services together over the rooms that they stand on, and listens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hai_backend.auth.directory import Directory
from hai_backend.config import Settings
from hai_backend.domain.errors import Unavailable
from hai_backend.logs.store import LogStore
from hai_backend.loops.clock import Clock
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.hub import Hub
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.performing import Performer
from hai_backend.loops.scheduling import Scheduling
from hai_backend.metrics.prometheus import Metrics
from hai_backend.sched import Policy
from hai_backend.services.agent_service import AgentPorts, AgentService
from hai_backend.services.audit import AuditTrail
from hai_backend.services.capacity import Capacity
from hai_backend.services.interceptors import Gate
from hai_backend.services.log_service import LogService
from hai_backend.services.node_board import NodeBoard
from hai_backend.services.node_service import NodeService
from hai_backend.services.server import Endpoint, Listening, Servicers, build_server
from hai_backend.services.server_service import ServerService
from hai_backend.services.submitting import Submitting
from hai_backend.services.task_access import TaskAccess
from hai_backend.services.task_service import TaskRooms, TaskService
from hai_backend.services.user_service import UserService
from hai_backend.store.base import Store


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the services stand on."""

    settings: Settings
    store: Store
    launcher: str
    clock: Clock
    policy: Policy
    directory: Directory
    cluster: Cluster
    ledger: Ledger
    scheduling: Scheduling
    hub: Hub
    performer: Performer
    logs: LogStore
    metrics: Metrics
    secret: bytes


@dataclass(frozen=True, slots=True)
class Gateway:
    """A server that answers, where it does, and the trail that must be flushed after it."""

    listening: Listening
    trail: AuditTrail

    @property
    def address(self) -> str:
        return self.listening.address

    async def close(self, grace: float) -> None:
        """Let calls end for `grace` seconds, then write the last rows of audit."""
        await self.listening.stop(grace)
        await self.trail.close()


async def open_gateway(rooms: Rooms) -> Gateway:
    """Listen and answer. Raises Invalid for bad settings, Unavailable when the address is taken."""
    trail = AuditTrail(rooms.store)
    gate = Gate(rooms.directory, trail, rooms.clock, observe=rooms.metrics.call)
    listening = _listen(rooms.settings, _servicers(rooms), gate)
    await listening.start()
    return Gateway(listening, trail)


def _listen(settings: Settings, servicers: Servicers, gate: Gate) -> Listening:
    """Port 0 means the port of the last start, so that agents and profiles find the server again, else a free one."""
    host, _, port = settings.listen.rpartition(":")
    last = _last_port(settings.home) if port == "0" else ""
    if last:
        try:
            return _listen_at(settings, f"{host}:{last}", servicers, gate)
        except Unavailable:
            pass  # another program has taken it meanwhile
    return _listen_at(settings, settings.listen, servicers, gate)


def _listen_at(settings: Settings, address: str, servicers: Servicers, gate: Gate) -> Listening:
    endpoint = Endpoint(address, settings.tls_cert, settings.tls_key, settings.insecure)
    return build_server(endpoint, servicers, [gate])


def _last_port(home: Path) -> str:
    try:
        address = json.loads((home / "port.json").read_text())
    except (OSError, ValueError):
        return ""
    return str(address)


def _servicers(rooms: Rooms) -> Servicers:
    capacity = Capacity(rooms.cluster)
    access = TaskAccess(rooms.ledger, rooms.directory)
    submitting = Submitting(
        rooms.ledger, rooms.store, rooms.directory, capacity, rooms.policy, rooms.clock
    )
    stands_on = TaskRooms(
        rooms.ledger,
        rooms.store,
        rooms.scheduling,
        rooms.cluster,
        rooms.directory,
        submitting,
        rooms.clock,
    )
    board = NodeBoard(rooms.cluster, rooms.ledger, rooms.clock)
    return Servicers(
        tasks=TaskService(stands_on),
        nodes=NodeService(rooms.cluster, rooms.ledger, board, capacity, access),
        users=UserService(rooms.directory, rooms.ledger, rooms.clock),
        logs=LogService(rooms.logs, rooms.ledger, access),
        server=ServerService(rooms.settings.cluster, rooms.launcher, rooms.clock),
        agents=AgentService(_agent_ports(rooms)),
    )


def _agent_ports(rooms: Rooms) -> AgentPorts:
    return AgentPorts(
        ledger=rooms.ledger,
        hub=rooms.hub,
        performer=rooms.performer,
        logs=rooms.logs,
        clock=rooms.clock,
        secret=rooms.secret,
        node=rooms.cluster.nodes().get,
        checkpoints=rooms.settings.home / "checkpoints",
        saved=rooms.scheduling.saved,
    )
