"""A connection to one server: the stream of this rank, and streams for tunnels beside it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from hai.client.connection.stream_call import StreamCall
from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.agent.rank_dir import ServerAddress

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # our own back-off counts, not one shared by address
    ("grpc.enable_http_proxy", 0),  # http_proxy is for what programs load
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
)


class Stream(Protocol):
    """Messages both ways. It ends with an AioRpcError, whoever ends it (see StreamCall)."""

    def __aiter__(self) -> AsyncIterator[pb.AttachResponse]: ...
    async def write(self, message: pb.AttachRequest, /) -> None: ...
    def cancel(self, reason: str = "", /) -> object: ...


class Connection(Protocol):
    """What a session needs of one."""

    address: str  # ours, as the server's network sees it: siblings reach this rank there

    def attach(self) -> Stream: ...
    def carry(self) -> StreamCall[pb.CarryRequest, pb.CarryResponse]: ...


class Connect(Protocol):
    """Opens a connection for as long as the context lasts. Raises OSError, ValueError or AioRpcError."""

    def __call__(
        self, server: ServerAddress, token: str, /
    ) -> AbstractAsyncContextManager[Connection]: ...


@asynccontextmanager
async def connect(server: ServerAddress, token: str) -> AsyncIterator[Connection]:
    """By gRPC. Nothing is sent before the first call."""
    address = await local_address(server.address)
    async with _channel(server) as channel:
        yield _GrpcConnection(address, rpc.AgentServiceStub(channel), token)


class _GrpcConnection:
    def __init__(self, address: str, stub: rpc.AgentServiceAsyncStub, token: str) -> None:
        self.address = address
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {token}"),)

    def attach(self) -> StreamCall[pb.AttachRequest, pb.AttachResponse]:
        return StreamCall(self._stub.Attach(metadata=self._metadata))

    def carry(self) -> StreamCall[pb.CarryRequest, pb.CarryResponse]:
        return StreamCall(self._stub.Carry(metadata=self._metadata))


async def local_address(server: str) -> str:
    """The address of ours that leads to a server. Raises OSError."""
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing: it only chooses the route
        return str(probe.getsockname()[0])


def _channel(server: ServerAddress) -> grpc.aio.Channel:
    if not server.ca:
        return grpc.aio.insecure_channel(server.address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(Path(server.ca).read_bytes())
    return grpc.aio.secure_channel(server.address, credentials, options=_OPTIONS)
