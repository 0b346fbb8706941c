"""The server itself."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.server_service_pb2 import GetServerInfoRequest, ServerInfo
from hai.v1.server_service_pb2_grpc import ServerServiceStub

if TYPE_CHECKING:
    from hai.v1.server_service_pb2_grpc import ServerServiceAsyncStub


class Server:
    """Version and capabilities of the server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> ServerServiceAsyncStub:
        return self._transport.stub(ServerServiceStub)

    async def info(self) -> ServerInfo:
        """Version, cluster name and clock; needs no token."""
        call = self._stub.GetServerInfo
        return await self._transport.unary(call, GetServerInfoRequest(), retry=True)
