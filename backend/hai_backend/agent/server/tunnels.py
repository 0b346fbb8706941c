"""Serves the tunnels that the server requests. Each tunnel connects to its target and has its own stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from grpc import aio

from hai.client.connection.stream_call import StreamCall
from hai.v1 import agent_service_pb2 as pb
from hai.v1 import tunnel_pb2
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.rank_dir import Identity
from hai_backend.agent.server import tunnel_endpoint
from hai_backend.agent.server.session import Session
from hai_backend.agent.server.tunnel_endpoint import TunnelEndpoint, Unreachable
from hai_backend.agent.services.services import Services
from hai_backend.launch.flow_control import ReceivedBytes, SendWindow

_NO_PROGRAM = "the program of this rank has not started yet; try again in a moment"
_ENDED = "the program of this rank has ended"
_Stream = StreamCall[pb.CarryRequest, pb.CarryResponse]


class Tunnels:
    """Serves all tunnels of a rank. Shells start in the environment of the program, while it runs."""

    def __init__(
        self, identity: Identity, session: Session, services: Services, reaper: Reaper
    ) -> None:
        self._identity = identity
        self._session = session
        self._services = services
        self._reaper = reaper
        self._environment: tuple[Path, Mapping[str, str]] | None = None
        self._refusal = _NO_PROGRAM  # the message while there is no environment
        self.shell_count = 0  # the number of open shells; while there are any, the rank is not idle

    def program_started(self, workspace: Path, variables: Mapping[str, str]) -> None:
        """Allow shells, in the environment of the program."""
        self._environment = (workspace, variables)

    def program_ended(self) -> None:
        """Allow no more shells, because the server may start the rank elsewhere."""
        self._refusal, self._environment = _ENDED, None

    async def carry(self, request: pb.TunnelAsked) -> None:
        """Serve a tunnel until it ends, or until the connection to the server ends."""
        hello = pb.CarryHello(
            task_id=self._identity.task_id,
            run=self._identity.run,
            rank=self._identity.rank,
            tunnel=request.tunnel,
        )
        try:
            endpoint = await self._connect(request.target)
        except (Unreachable, OSError) as error:  # OSError if no process can be started
            hello.refused = str(error)
            return await self._refuse(hello)
        is_shell = request.target.WhichOneof("target") == "shell"
        self.shell_count += is_shell
        try:
            stream = self._session.carry()
            if stream is not None:
                await _Splice(stream, endpoint).run(hello)
        finally:
            self.shell_count -= is_shell
            await endpoint.close()

    async def _connect(self, target: tunnel_pb2.TunnelTarget) -> TunnelEndpoint:
        """Connect to the target. Raises Unreachable, or OSError if no process can be started."""
        match target.WhichOneof("target"):
            case "port":
                return await tunnel_endpoint.connect_to_port(target.port)
            case "service":
                return await self._services.connect(target.service)
            case "shell":
                if self._environment is None:
                    raise Unreachable(self._refusal)
                from hai_backend.agent.services import shell  # here, because few ranks need it

                return shell.start(target.shell, *self._environment, self._reaper)
            case _:
                raise Unreachable(
                    "this agent does not know such a target; it is older than its server"
                )

    async def _refuse(self, hello: pb.CarryHello) -> None:
        stream = self._session.carry()
        if stream is None:
            return
        with suppress(aio.AioRpcError):
            await stream.write(pb.CarryRequest(hello=hello))
            await stream.done_writing()
            await stream.status()


class _Splice:
    """Carries bytes in both directions. It always reads the stream, so that neither direction can block the other."""

    def __init__(self, stream: _Stream, endpoint: TunnelEndpoint) -> None:
        self._stream = stream
        self._endpoint = endpoint
        self._window, self._received = SendWindow(), ReceivedBytes()
        self._inward: asyncio.Queue[pb.CarryResponse] = asyncio.Queue()  # bounded by flow control
        self._one_writer = asyncio.Lock()
        self._done_writing = False

    async def run(self, hello: pb.CarryHello) -> None:
        """Carry bytes until the stream ends. One direction may end before the other."""
        try:
            async with asyncio.TaskGroup() as group:
                directions = [
                    group.create_task(w)
                    for w in (self._forward_to_caller(hello), self._forward_to_target())
                ]
                async for response in self._stream:
                    if response.WhichOneof("message") == "taken":
                        self._window.acknowledge(response.taken)
                    else:
                        self._inward.put_nowait(response)
                for direction in directions:
                    direction.cancel()
        except* (aio.AioRpcError, OSError):
            pass  # the stream or the target has ended
        finally:
            self._stream.cancel("the tunnel is closed")

    async def _forward_to_caller(self, hello: pb.CarryHello) -> None:
        """Send the output of the target to the caller."""
        await self._write(pb.CarryRequest(hello=hello))
        async for message in self._endpoint.messages():
            await self._window.reserve(len(message.data) + len(message.error_data))
            await self._write(message)
        if message.WhichOneof("message") == "exit_code":
            async with self._one_writer:
                self._done_writing = True
                await self._stream.done_writing()

    async def _forward_to_target(self) -> None:
        """Pass the input of the caller to the target."""
        while True:
            response = await self._inward.get()
            match response.WhichOneof("message"):
                case "data":
                    await self._endpoint.write(response.data)
                    if self._received.add(len(response.data)):
                        await self._write(pb.CarryRequest(taken=self._received.count))
                case "resize":
                    self._endpoint.resize(response.resize)
                case "end":
                    self._endpoint.end_input()

    async def _write(self, message: pb.CarryRequest) -> None:
        async with self._one_writer:
            # After the end of writing, a message only acknowledges bytes, and the server does not need it.
            if not self._done_writing:
                await self._stream.write(message)
