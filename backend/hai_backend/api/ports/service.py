"""PortService: ports of the nodes that lead to services of tasks."""

from __future__ import annotations

from hai.v1 import port_pb2
from hai.v1 import port_service_pb2 as pb
from hai.v1.port_service_pb2_grpc import PortServiceServicer
from hai_backend.api.ports.reservations import NodePorts, port_to_proto
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.domain.errors import Denied


class PortService(PortServiceServicer):
    """See proto/hai/v1/port_service.proto for what each call means."""

    def __init__(self, ports: NodePorts) -> None:
        self._ports = ports

    async def ListPorts(
        self, request: pb.ListPortsRequest, context: Context
    ) -> pb.ListPortsResponse:
        identity = current_caller()
        user = request.user or identity.name
        if user != identity.name and not identity.operates:
            raise Denied(
                f"ports of {user} are for {user} and operators only", reason="ROLE_TOO_LOW"
            )
        return pb.ListPortsResponse(ports=map(port_to_proto, await self._ports.list_for(user)))

    async def CreatePort(self, request: pb.CreatePortRequest, context: Context) -> port_pb2.Port:
        return port_to_proto(await self._ports.create(current_caller(), request.port))

    async def BindPort(self, request: pb.BindPortRequest, context: Context) -> port_pb2.Port:
        number, name, service = request.node_port, request.task_name, request.service
        return port_to_proto(await self._ports.bind(current_caller(), number, name, service))

    async def DeletePort(
        self, request: pb.DeletePortRequest, context: Context
    ) -> pb.DeletePortResponse:
        await self._ports.delete(current_caller(), request.node_port)
        return pb.DeletePortResponse()
