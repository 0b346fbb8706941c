"""Calls about dev containers, and about services of any task."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.container_pb2 import Container, ServiceAction
from hai.v1.container_service_pb2 import (
    ControlServiceRequest,
    DeleteContainerRequest,
    GetContainerRequest,
    OpenContainerRequest,
    OpenContainerResponse,
    RenewContainerRequest,
)
from hai.v1.container_service_pb2_grpc import ContainerServiceStub

if TYPE_CHECKING:
    from hai.v1.container_service_pb2_grpc import ContainerServiceAsyncStub

_LONG_SECONDS = 60.0  # a program that is stopped may use its whole grace period


class Containers:
    """Calls about containers and services. The id is that of their task."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> ContainerServiceAsyncStub:
        return self._transport.stub(ContainerServiceStub)

    async def get(self, id: int) -> Container:
        """Return the services of a task, and when the task ends."""
        request = GetContainerRequest(id=id)
        return await self._transport.unary(self._stub.GetContainer, request, retry=True)

    async def open(self, id: int, service: str = "") -> OpenContainerResponse:
        """Return a link with which one browser can log in once."""
        request = OpenContainerRequest(id=id, service=service)
        return await self._transport.unary(self._stub.OpenContainer, request, retry=True)

    async def control(
        self, id: int, service: str, action: ServiceAction.ValueType, *, rank: int = 0
    ) -> Container:
        """Start, stop or restart a service, and wait until that is done."""
        request = ControlServiceRequest(id=id, service=service, rank=rank, action=action)
        return await self._transport.unary(
            self._stub.ControlService, request, deadline=_LONG_SECONDS
        )

    async def renew(self, id: int) -> Container:
        """Restart the lifetime of a container."""
        request = RenewContainerRequest(id=id)
        return await self._transport.unary(self._stub.RenewContainer, request)

    async def delete(self, id: int, *, keep_files: bool = False) -> None:
        """Stop a container and remove its directory."""
        request = DeleteContainerRequest(id=id, keep_files=keep_files)
        await self._transport.unary(
            self._stub.DeleteContainer, request, retry=True, deadline=_LONG_SECONDS
        )
