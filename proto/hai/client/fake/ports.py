"""The port service of the fake server, without limits."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import World, copy
from hai.v1 import port_service_pb2 as pb
from hai.v1.port_pb2 import Port

_FIRST = 30_000


class FakePortService:
    """PortService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListPorts(self, request: pb.ListPortsRequest) -> pb.ListPortsResponse:
        user = request.user or self._world.user
        ports = [p for _, p in sorted(self._world.ports.items()) if user in ("*", p.user)]
        return pb.ListPortsResponse(ports=ports)

    async def CreatePort(self, request: pb.CreatePortRequest) -> Port:
        port, ports = copy(request.port), self._world.ports
        port.user = port.user or self._world.user
        self._require_free(port)
        if port.node_port in ports:
            raise Conflict(f"port {port.node_port} is kept for somebody already")
        free = (n for n in range(_FIRST, _FIRST + len(ports) + 1) if n not in ports)
        port.node_port = port.node_port or next(free)
        port.create_time.CopyFrom(self._world.time())
        ports[port.node_port] = port
        return copy(port)

    async def BindPort(self, request: pb.BindPortRequest) -> Port:
        bound = copy(self._find(request.node_port))
        bound.task_name, bound.service = request.task_name, request.service
        self._require_free(bound)
        self._world.ports[bound.node_port] = bound
        return copy(bound)

    async def DeletePort(self, request: pb.DeletePortRequest) -> pb.DeletePortResponse:
        del self._world.ports[self._find(request.node_port).node_port]
        return pb.DeletePortResponse()

    def _find(self, number: int) -> Port:
        if number not in self._world.ports:
            raise NotFound(f"there is no port {number}")
        return self._world.ports[number]

    def _require_free(self, port: Port) -> None:
        target = (port.user, port.task_name, port.service)
        for other in self._world.ports.values():
            same = (other.user, other.task_name, other.service) == target
            if same and other.node_port != port.node_port:
                raise Conflict(f"service {port.service} has port {other.node_port} already")
