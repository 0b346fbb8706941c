"""Tunnels in the agent. If the target or the stream ends or fails, only the tunnel ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from hai.client.connection.stream_call import StreamCall
from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai.v1 import tunnel_pb2
from hai_backend.agent.server.tunnels import _Splice
from hai_backend.launch.flow_control import ACKNOWLEDGE_BYTES, WINDOW_BYTES

HELLO = pb.CarryHello(task_id=1, run=1, rank=0, tunnel="t")


class Target:
    """Sends the given messages. An exception among them is raised."""

    def __init__(self, *said: pb.CarryRequest | BaseException) -> None:
        self._said = said
        self.written = 0

    async def messages(self) -> AsyncIterator[pb.CarryRequest]:
        for message in self._said:
            if isinstance(message, BaseException):
                raise message
            yield message

    async def write(self, data: bytes) -> None:
        self.written += len(data)

    def resize(self, size: tunnel_pb2.TerminalSize) -> None: ...
    def end_input(self) -> None: ...
    async def close(self) -> None: ...


class Server(rpc.AgentServiceServicer):
    """Sends as many bytes as flow control allows after it has received the message `until`. Stores all messages."""

    def __init__(self, until: str) -> None:
        self._until = until
        self.heard: list[pb.CarryRequest] = []
        self.over = asyncio.Event()

    async def Carry(
        self, request_iterator: AsyncIterator[pb.CarryRequest], context: Any
    ) -> AsyncIterator[pb.CarryResponse]:
        try:
            async for request in request_iterator:
                self.heard.append(request)
                if request.WhichOneof("message") == self._until:
                    for _ in range(WINDOW_BYTES // ACKNOWLEDGE_BYTES):
                        yield pb.CarryResponse(data=bytes(ACKNOWLEDGE_BYTES))
        finally:
            self.over.set()


async def carried(target: Target, until: str) -> Server:
    """Run a tunnel to this target until it ends without an error, and return the server."""
    server, listening = Server(until), grpc.aio.server()
    rpc.add_AgentServiceServicer_to_server(server, listening)
    port = listening.add_insecure_port("127.0.0.1:0")
    await listening.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = StreamCall(rpc.AgentServiceStub(channel).Carry())
        await asyncio.wait_for(_Splice(stream, target).run(HELLO), 20)
        await asyncio.wait_for(server.over.wait(), 20)
    await listening.stop(0)
    return server


async def test_what_a_caller_still_sends_to_a_command_that_has_ended_is_taken() -> None:
    """In `cat large | hai shell 7 -- head -1`, it is too late to acknowledge input, and this is not an error."""
    target = Target(pb.CarryRequest(data=b"first"), pb.CarryRequest(exit_code=0))
    server = await carried(target, until="exit_code")
    assert server.heard[-1].exit_code == 0
    assert target.written == WINDOW_BYTES


@pytest.mark.parametrize("error", [BrokenPipeError(), TimeoutError(110, "ETIMEDOUT")])
async def test_a_target_that_breaks_ends_its_tunnel_only(error: OSError) -> None:
    await carried(Target(pb.CarryRequest(data=b"first"), error), until="never")
