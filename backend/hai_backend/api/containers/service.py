"""Dev containers and services of tasks. See proto/hai/v1/container_service.proto for what each call means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hai.v1 import agent_service_pb2 as agent
from hai.v1 import container_pb2
from hai.v1 import container_service_pb2 as pb
from hai.v1.container_service_pb2_grpc import ContainerServiceServicer
from hai_backend.api.containers.containers import Browsers, is_main, picture, web_service
from hai_backend.api.protocols import TaskManager
from hai_backend.api.server import caller
from hai_backend.api.server.handler_wrapper import Context
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tunnels.service import running_rank
from hai_backend.auth.permissions import require_oneself
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.errors import Conflict, Invalid, NotFound, Unavailable, Violation
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task, TaskState
from hai_backend.lifecycle import events as ev

_DONE_SECONDS = 20.0  # stopping takes 5, and Lab starts in 10
_GONE_SECONDS = 50.0
_ACTIONS = (
    container_pb2.SERVICE_ACTION_START,
    container_pb2.SERVICE_ACTION_STOP,
    container_pb2.SERVICE_ACTION_RESTART,
)
_ENDED = (container_pb2.SERVICE_STATE_STOPPED, container_pb2.SERVICE_STATE_FAILED)


@dataclass(frozen=True, slots=True)
class ContainerDeps:
    """What the service stands on. `remove` removes the directory of a container."""

    task_manager: TaskManager
    access: TaskAccess
    hub: ConnectedAgents
    board: ServiceStates
    browsers: Browsers
    clock: Clock
    remove: Callable[[int], Awaitable[None]]


class ContainerService(ContainerServiceServicer):
    """Check, do, answer the picture."""

    def __init__(self, rooms: ContainerDeps) -> None:
        self._r = rooms

    async def GetContainer(
        self, request: pb.GetContainerRequest, context: Context
    ) -> container_pb2.Container:
        return self._picture(await self._r.access.visible(caller.current(), request.id))

    async def OpenContainer(
        self, request: pb.OpenContainerRequest, context: Context
    ) -> pb.OpenContainerResponse:
        identity = caller.current()
        task = await self._r.access.visible(identity, request.id)
        require_oneself(identity, task.spec, f"dev container {task.id}")
        if task.state is TaskState.FINISHED:
            raise Conflict(
                f"task {task.id} is finished; nothing of it can be opened", reason="TASK_FINISHED"
            )
        service = web_service(task, request.service)
        name = "" if is_main(task, service) else service.name
        return pb.OpenContainerResponse(
            link=self._r.browsers.link(identity, task, name),
            url=self._r.browsers.url(task.id, name),
        )

    async def ControlService(
        self, request: pb.ControlServiceRequest, context: Context
    ) -> container_pb2.Container:
        task = await self._r.access.steerable(caller.current(), request.id)
        if request.action not in _ACTIONS:
            raise Invalid((Violation("action", "must be start, stop or restart"),))
        service = next((s for s in task.spec.services if s.name == request.service), None)
        if service is None or request.rank not in service.rank:
            where = f"rank {request.rank} of task {task.id}"
            raise NotFound(f"{where} has no service {request.service!r}", reason="NO_SUCH_SERVICE")
        key = running_rank(task, request.rank)
        before = self._status(task, request)
        told = agent.ServiceControlled(name=request.service, action=request.action)
        if not self._r.hub.send_if_attached(key, agent.AttachResponse(control_service=told)):
            raise Unavailable(f"the agent of rank {key} is not connected just now; try again")
        await self._done(task, request, before)
        return self._picture(await self._r.task_manager.get(task.id))

    async def RenewContainer(
        self, request: pb.RenewContainerRequest, context: Context
    ) -> container_pb2.Container:
        task, by = await self._container(request.id), caller.current().name
        return self._picture(await self._r.task_manager.apply(task.id, ev.Renewed(by)))

    async def DeleteContainer(
        self, request: pb.DeleteContainerRequest, context: Context
    ) -> pb.DeleteContainerResponse:
        task = await self._container(request.id)
        task = await self._r.task_manager.stop(task.id, caller.current().name, None)
        await self._finished(task)
        if not request.keep_files:
            await self._r.remove(task.id)
        return pb.DeleteContainerResponse()

    async def _container(self, task_id: int) -> Task:
        task = await self._r.access.steerable(caller.current(), task_id)
        if task.spec.task_type is not TaskType.JUPYTER:
            raise Conflict(f"task {task.id} is no dev container", reason="NO_CONTAINER")
        return task

    async def _finished(self, task: Task) -> None:
        """Its directory must not be removed below its feet."""
        try:
            async with asyncio.timeout(_GONE_SECONDS):
                while task.state is not TaskState.FINISHED:
                    version = self._r.task_manager.feed.version
                    task = await self._r.task_manager.get(task.id)
                    if task.state is not TaskState.FINISHED:
                        await self._r.task_manager.feed.beyond(version)
        except TimeoutError:
            raise Unavailable(
                f"container {task.id} has not ended yet; delete it again in a moment"
            ) from None

    async def _done(
        self,
        task: Task,
        request: pb.ControlServiceRequest,
        before: container_pb2.ServiceStatus | None,
    ) -> None:
        """Wait until the rank says that it was done. What takes longer shows in the answer as it is then."""
        starts = before.starts if before is not None else 0
        try:
            async with asyncio.timeout(_DONE_SECONDS):
                while not _is_done(self._status(task, request), request.action, starts):
                    await self._r.board.feed.beyond(self._r.board.feed.version)
        except TimeoutError:
            return

    def _status(
        self, task: Task, request: pb.ControlServiceRequest
    ) -> container_pb2.ServiceStatus | None:
        told = self._r.board.services(task)
        return next((s for s in told if (s.name, s.rank) == (request.service, request.rank)), None)

    def _picture(self, task: Task) -> container_pb2.Container:
        return picture(task, self._r.board, self._r.browsers.url, self._r.clock.now())


def _is_done(
    status: container_pb2.ServiceStatus | None,
    action: container_pb2.ServiceAction.ValueType,
    starts: int,
) -> bool:
    if status is None:
        return False
    if action == container_pb2.SERVICE_ACTION_STOP:
        return status.state in _ENDED
    if action == container_pb2.SERVICE_ACTION_RESTART and status.starts <= starts:
        return status.state == container_pb2.SERVICE_STATE_FAILED
    return status.state in (container_pb2.SERVICE_STATE_READY, container_pb2.SERVICE_STATE_FAILED)
