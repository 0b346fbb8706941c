"""Reserved ports on the nodes, which lead to services of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.port_pb2 import Port
from hai.v1.port_service_pb2 import (
    BindPortRequest,
    CreatePortRequest,
    DeletePortRequest,
    ListPortsRequest,
)
from hai.v1.port_service_pb2_grpc import PortServiceStub

if TYPE_CHECKING:
    from hai.v1.port_service_pb2_grpc import PortServiceAsyncStub


class Ports:
    """Calls about reserved ports. A port stays the same over all runs of a task."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> PortServiceAsyncStub:
        return self._transport.stub(PortServiceStub)

    async def list(self, user: str = "") -> Sequence[Port]:
        """Return the ports of a user (by default the caller; `*` for all users), by number."""
        request = ListPortsRequest(user=user)
        return (await self._transport.unary(self._stub.ListPorts, request, retry=True)).ports

    async def create(
        self, task_name: str, service: str, *, node_port: int = 0, user: str = ""
    ) -> Port:
        """Reserve a port for a service. Operators may choose its number and user."""
        port = Port(task_name=task_name, service=service, node_port=node_port, user=user)
        return await self._transport.unary(self._stub.CreatePort, CreatePortRequest(port=port))

    async def bind(self, node_port: int, task_name: str, service: str) -> Port:
        """Forward a port to another service or task name."""
        request = BindPortRequest(node_port=node_port, task_name=task_name, service=service)
        return await self._transport.unary(self._stub.BindPort, request)

    async def delete(self, node_port: int) -> None:
        """Release a port."""
        request = DeletePortRequest(node_port=node_port)
        await self._transport.unary(self._stub.DeletePort, request)
