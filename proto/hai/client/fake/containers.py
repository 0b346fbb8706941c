"""The container and tunnel services of the fake server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import FakeService, World, finish
from hai.v1 import container_service_pb2 as pb
from hai.v1.container_pb2 import (
    SERVICE_ACTION_STOP,
    SERVICE_STATE_READY,
    SERVICE_STATE_STOPPED,
    Container,
    ServiceStatus,
)
from hai.v1.task_pb2 import TASK_OUTCOME_STOPPED, TASK_STATE_RUNNING, Task
from hai.v1.tunnel_service_pb2 import OpenTunnelRequest, OpenTunnelResponse, TunnelOpened


class FakeContainerService(FakeService):
    """Services are ready while their task runs."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stopped: set[tuple[int, str]] = set()

    async def GetContainer(self, request: pb.GetContainerRequest) -> Container:
        return self._container_of(request.id)

    async def OpenContainer(self, request: pb.OpenContainerRequest) -> pb.OpenContainerResponse:
        url = self._container_of(request.id).url
        if not url:
            raise NotFound(f"task {request.id} has no http service", reason="NO_SUCH_SERVICE")
        return pb.OpenContainerResponse(link=f"{url}.hai/login?key=once", url=url)

    async def ControlService(self, request: pb.ControlServiceRequest) -> Container:
        key = (request.id, request.service)
        if request.action == SERVICE_ACTION_STOP:
            self._stopped.add(key)
        else:
            self._stopped.discard(key)
        return self._container_of(request.id)

    async def RenewContainer(self, request: pb.RenewContainerRequest) -> Container:
        return self._container_of(request.id)

    async def DeleteContainer(
        self, request: pb.DeleteContainerRequest
    ) -> pb.DeleteContainerResponse:
        reason = f"deleted by {self._world.user}"
        finish(self._world, self._world.task(request.id), TASK_OUTCOME_STOPPED, reason)
        return pb.DeleteContainerResponse()

    def _container_of(self, id: int) -> Container:
        task = self._world.task(id)
        services = [self._status(task, s.name, s.type or "http") for s in task.spec.services]
        web = any(s.type == "http" for s in services)
        url = f"http://t{id}.localhost:8080/" if web else ""
        for status in services:
            status.url = url if status.type == "http" else ""
        return Container(id=id, services=services, url=url)

    def _status(self, task: Task, name: str, kind: str) -> ServiceStatus:
        status = ServiceStatus(name=name, type=kind)
        if task.state == TASK_STATE_RUNNING:
            status.starts = 1
            stopped = (task.id, name) in self._stopped
            status.state = SERVICE_STATE_STOPPED if stopped else SERVICE_STATE_READY
        return status


class FakeTunnelService(FakeService):
    """Returns to the caller what the caller sends."""

    async def OpenTunnel(
        self, requests: AsyncIterator[OpenTunnelRequest]
    ) -> AsyncGenerator[OpenTunnelResponse, None]:
        opening = (await anext(requests)).open
        task = self._world.task(opening.task_id)
        if task.state != TASK_STATE_RUNNING:
            raise Conflict(f"task {task.id} is not running", reason="NOT_RUNNING")
        yield OpenTunnelResponse(opened=TunnelOpened(run=task.run_count))
        async for request in requests:
            yield OpenTunnelResponse(data=request.data)
        yield OpenTunnelResponse(exit_code=0)
