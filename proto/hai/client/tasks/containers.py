"""What dev containers have beside being tasks, and services of any task."""

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

_LONG_SECONDS = 60.0  # stopping a program may take its grace


class Containers:
    """Containers and services, by the id of their task."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> ContainerServiceAsyncStub:
        return self._transport.stub(ContainerServiceStub)

    async def get(self, id: int) -> Container:
        """The services of a task, and when the task ends."""
        request = GetContainerRequest(id=id)
        return await self._transport.unary(self._stub.GetContainer, request, retry=True)

    async def open(self, id: int, service: str = "") -> OpenContainerResponse:
        """A link that lets one browser in, once."""
        request = OpenContainerRequest(id=id, service=service)
        return await self._transport.unary(self._stub.OpenContainer, request, retry=True)

    async def control(
        self, id: int, service: str, action: ServiceAction.ValueType, *, rank: int = 0
    ) -> Container:
        """Start, stop or restart a service; returns when that is done."""
        request = ControlServiceRequest(id=id, service=service, rank=rank, action=action)
        return await self._transport.unary(
            self._stub.ControlService, request, deadline=_LONG_SECONDS
        )

    async def renew(self, id: int) -> Container:
        """Start the lifetime of a container again."""
        request = RenewContainerRequest(id=id)
        return await self._transport.unary(self._stub.RenewContainer, request)

    async def delete(self, id: int, *, keep_files: bool = False) -> None:
        """Stop a container and remove its directory."""
        request = DeleteContainerRequest(id=id, keep_files=keep_files)
        await self._transport.unary(
            self._stub.DeleteContainer, request, retry=True, deadline=_LONG_SECONDS
        )
