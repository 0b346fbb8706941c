"""TunnelService: connections to ports, services and shells of ranks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from hai.v1 import agent_service_pb2 as agent
from hai.v1 import tunnel_service_pb2 as pb
from hai.v1.tunnel_pb2 import TunnelEnd, TunnelTarget
from hai.v1.tunnel_service_pb2_grpc import TunnelServiceServicer
from hai_backend.api.audit.rows import AddRows, describe_change
from hai_backend.api.request import limits
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_runs_as_self
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.tunnels import PIECE_BYTES, Tunnel, Tunnels, rank_of
from hai_backend.domain.errors import Conflict, Invalid, NotFound, Unavailable, Violation
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey
from hai_backend.store.base import AuditRow

_OPENING_SECONDS = 30.0
_DESCRIPTION_CHARS = 200


@dataclass(frozen=True, slots=True)
class TunnelDeps:
    """The parts of the server that the service needs."""

    tunnels: Tunnels
    access: TaskAccess
    directory: Directory
    clock: Clock
    add_audit_rows: AddRows


class TunnelService(TunnelServiceServicer):
    """See proto/hai/v1/tunnel_service.proto for what each call means."""

    def __init__(self, deps: TunnelDeps) -> None:
        self._deps = deps

    async def OpenTunnel(
        self, request_iterator: AsyncIterator[pb.OpenTunnelRequest], context: Context
    ) -> AsyncIterator[pb.OpenTunnelResponse]:
        identity, opening = current_caller(), await _read_opening(request_iterator)
        description = f"task={opening.task_id} rank={opening.rank} {_describe(opening.target)}"
        describe_change(description)
        key = await self._require_rank(identity, opening)
        with self._deps.tunnels.opened(
            key, opening.target, identity.name, self._permission_check(identity)
        ) as tunnel:
            sender = asyncio.ensure_future(_send(request_iterator, tunnel))
            try:
                await tunnel.wait_reached()
                await self._add_opened_row(identity, key.task_id, description)
                yield pb.OpenTunnelResponse(opened=pb.TunnelOpened(run=key.run))
                while (message := await tunnel.next_for_caller()) is not None:
                    yield _response(message)
            finally:
                sender.cancel()
        if tunnel.why is not None:
            raise tunnel.why

    async def _require_rank(self, identity: Identity, opening: pb.TunnelOpening) -> RankKey:
        task = await self._deps.access.get_modifiable(identity, opening.task_id)
        require_runs_as_self(identity, task.spec, f"dev container {task.id}")
        return running_rank(task, opening.rank)

    async def _add_opened_row(self, identity: Identity, task_id: int, description: str) -> None:
        """Store an audit row now. The row of CallGuard follows when the tunnel ends, perhaps days later."""
        row = AuditRow(
            time=self._deps.clock.now(),
            actor=identity.actor,
            method="OpenTunnel",
            resource=str(task_id),
            what=description,
            code="OPENED",
        )
        await self._deps.add_audit_rows([row])

    def _permission_check(self, before: Identity) -> Callable[[], None]:
        """Return a function that raises once the token is invalid or the caller lost the permission for the task."""

        def check() -> None:
            now = self._deps.directory.identity_of(before.token_id, self._deps.clock.now())
            if before.oversees_tasks and not now.oversees_tasks:
                raise NotFound(f"{now.name} may no longer see this task")

        return check


def running_rank(task: Task, rank: int) -> RankKey:
    """Return the key of a running rank. Raises Invalid for an unknown rank, or Conflict if it does not run."""
    if not 0 <= rank < max(task.node_count, len(task.run.ranks) if task.run else 0):
        last = task.node_count - 1
        raise Invalid(
            (Violation("rank", f"task {task.id} has no rank {rank}; its last is {last}"),)
        )
    key = rank_of(task, rank)
    if key is None:
        state = task.state.value.lower().replace("_", " ")
        raise Conflict(
            f"rank {rank} of task {task.id} is not running (the task is {state}); `hai why {task.id}` tells more",
            reason="NOT_RUNNING",
        )
    return key


async def _read_opening(requests: AsyncIterator[pb.OpenTunnelRequest]) -> pb.TunnelOpening:
    first = None
    try:
        async with asyncio.timeout(_OPENING_SECONDS):
            first = await anext(requests, None)
    except TimeoutError:
        pass
    if first is None or first.WhichOneof("message") != "open":
        raise Invalid((Violation("open", "must be the first message of a tunnel"),))
    _check_target(first.open.target)
    return first.open


def _check_target(target: TunnelTarget) -> None:
    kind = target.WhichOneof("target")
    if kind is None:
        raise Invalid((Violation("open.target", "is required: a port, a service or a shell"),))
    if kind == "port" and not 1 <= target.port <= 65535:
        raise Invalid((Violation("open.target.port", f"must be 1-65535, not {target.port}"),))
    command_chars = sum(map(len, target.shell.command))
    if command_chars > limits.SPEC_BYTES or any("\0" in word for word in target.shell.command):
        message = f"must have at most {limits.SPEC_BYTES} characters, and no NUL"
        raise Invalid((Violation("open.target.shell.command", message),))


def _describe(target: TunnelTarget) -> str:
    match target.WhichOneof("target"):
        case "port":
            return f"port={target.port}"
        case "service":
            return f"service={target.service[:_DESCRIPTION_CHARS]!r}"
        case _:
            return f"shell={list(target.shell.command)!r}"[:_DESCRIPTION_CHARS]


async def _send(requests: AsyncIterator[pb.OpenTunnelRequest], tunnel: Tunnel) -> None:
    """Send what the caller sends to the rank, in pieces, and then the end of the stream."""
    try:
        async for request in requests:
            match request.WhichOneof("message"):
                case "data":
                    for begin in range(0, len(request.data), PIECE_BYTES):
                        piece = request.data[begin : begin + PIECE_BYTES]
                        await tunnel.send_to_rank(agent.CarryResponse(data=piece))
                case "resize":
                    await tunnel.send_to_rank(agent.CarryResponse(resize=request.resize))
    except Invalid as error:  # an undecodable message
        return tunnel.end(error)
    except BaseException:  # without an end, the rank would wait forever
        tunnel.end(Unavailable("the data for the tunnel ended early; try again"))
        raise
    await tunnel.send_to_rank(agent.CarryResponse(end=TunnelEnd()))
    tunnel.end_direction()


def _response(message: agent.CarryRequest) -> pb.OpenTunnelResponse:
    match message.WhichOneof("message"):
        case "data":
            return pb.OpenTunnelResponse(data=message.data)
        case "error_data":
            return pb.OpenTunnelResponse(error_data=message.error_data)
        case "exit_code":
            return pb.OpenTunnelResponse(exit_code=message.exit_code)
        case _:
            return pb.OpenTunnelResponse(end=TunnelEnd())
