"""A gRPC connection to one server, which carries the stream of the rank and the streams of tunnels."""

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
    ("grpc.use_local_subchannel_pool", 1),  # do not share the back-off of other channels
    ("grpc.enable_http_proxy", 0),  # http_proxy is meant for programs
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
)
_REJECTIONS = (
    grpc.StatusCode.UNAUTHENTICATED,  # the run token is not valid any more
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,  # the task does not exist on the server
)


class Stream(Protocol):
    """A stream of messages in both directions. It raises AioRpcError when either side has ended it (see StreamCall)."""

    def __aiter__(self) -> AsyncIterator[pb.AttachResponse]: ...
    async def write(self, message: pb.AttachRequest, /) -> None: ...
    def cancel(self, reason: str = "", /) -> object: ...


class Connection(Protocol):
    """The methods of a connection that a session uses."""

    address: str  # the address of this machine in the server's network, which other ranks use

    def attach(self) -> Stream: ...
    def carry(self) -> StreamCall[pb.CarryRequest, pb.CarryResponse]: ...


class Connect(Protocol):
    """Opens a connection, and closes it at the end of the context. Raises OSError, ValueError or AioRpcError."""

    def __call__(
        self, server: ServerAddress, token: str, /
    ) -> AbstractAsyncContextManager[Connection]: ...


@asynccontextmanager
async def connect(server: ServerAddress, token: str) -> AsyncIterator[Connection]:
    """Connect by gRPC. Nothing is sent before the first call."""
    address = await find_local_address(server.address)
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


async def find_local_address(server: str) -> str:
    """Return the address of this machine from which packets reach a server. Raises OSError."""
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = addresses[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing; it only chooses the route
        return str(probe.getsockname()[0])


def _channel(server: ServerAddress) -> grpc.aio.Channel:
    if not server.ca:
        return grpc.aio.insecure_channel(server.address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(Path(server.ca).read_bytes())
    return grpc.aio.secure_channel(server.address, credentials, options=_OPTIONS)


def is_rejected(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the server rejects this rank. This is final, and the program must end."""
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
        return "FENCED" in _reasons(error)
    return error.code() in _REJECTIONS


def _reasons(error: grpc.aio.AioRpcError) -> set[str]:
    from google.rpc import error_details_pb2, status_pb2

    reasons = set()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    reasons.add(info.reason)
    return reasons
