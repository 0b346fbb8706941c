"""ContainerService: dev containers, and services of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hai.v1 import agent_service_pb2 as agent
from hai.v1 import container_pb2
from hai.v1 import container_service_pb2 as pb
from hai.v1.container_service_pb2_grpc import ContainerServiceServicer
from hai_backend.api.containers.containers import Browsers, container_to_proto, is_main, web_service
from hai_backend.api.protocols import TaskManager
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tunnels.service import running_rank
from hai_backend.auth.permissions import require_runs_as_self
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.errors import Conflict, Invalid, NotFound, Unavailable, Violation
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task, TaskState
from hai_backend.lifecycle import events as ev

_ACTION_TIMEOUT_SECONDS = 20.0  # a service stops within 5 seconds, and JupyterLab starts within 10
_END_TIMEOUT_SECONDS = 50.0
_ACTIONS = (
    container_pb2.SERVICE_ACTION_START,
    container_pb2.SERVICE_ACTION_STOP,
    container_pb2.SERVICE_ACTION_RESTART,
)
_ENDED = (container_pb2.SERVICE_STATE_STOPPED, container_pb2.SERVICE_STATE_FAILED)


@dataclass(frozen=True, slots=True)
class ContainerDeps:
    """Dependencies of the service. `remove_directory` deletes the directory of a container."""

    task_manager: TaskManager
    access: TaskAccess
    agents: ConnectedAgents
    service_states: ServiceStates
    browsers: Browsers
    clock: Clock
    remove_directory: Callable[[int], Awaitable[None]]


class ContainerService(ContainerServiceServicer):
    """See proto/hai/v1/container_service.proto for what each call means."""

    def __init__(self, deps: ContainerDeps) -> None:
        self._deps = deps

    async def GetContainer(
        self, request: pb.GetContainerRequest, context: Context
    ) -> container_pb2.Container:
        return self._to_proto(await self._deps.access.get_visible(current_caller(), request.id))

    async def OpenContainer(
        self, request: pb.OpenContainerRequest, context: Context
    ) -> pb.OpenContainerResponse:
        identity = current_caller()
        task = await self._deps.access.get_visible(identity, request.id)
        require_runs_as_self(identity, task.spec, f"dev container {task.id}")
        if task.state is TaskState.FINISHED:
            raise Conflict(
                f"task {task.id} is finished; it can no longer be opened", reason="TASK_FINISHED"
            )
        service = web_service(task, request.service)
        name = "" if is_main(task, service) else service.name
        return pb.OpenContainerResponse(
            link=self._deps.browsers.link(identity, task, name),
            url=self._deps.browsers.url(task.id, name),
        )

    async def ControlService(
        self, request: pb.ControlServiceRequest, context: Context
    ) -> container_pb2.Container:
        task = await self._deps.access.get_modifiable(current_caller(), request.id)
        if request.action not in _ACTIONS:
            raise Invalid((Violation("action", "must be start, stop or restart"),))
        service = next((s for s in task.spec.services if s.name == request.service), None)
        if service is None or request.rank not in service.rank:
            rank_name = f"rank {request.rank} of task {task.id}"
            raise NotFound(
                f"{rank_name} has no service {request.service!r}", reason="NO_SUCH_SERVICE"
            )
        key = running_rank(task, request.rank)
        previous = self._status(task, request)
        command = agent.ServiceControlled(name=request.service, action=request.action)
        if not self._deps.agents.send_if_attached(
            key, agent.AttachResponse(control_service=command)
        ):
            raise Unavailable(f"the agent of rank {key} is not connected; try again")
        await self._wait_done(task, request, previous)
        return self._to_proto(await self._deps.task_manager.get(task.id))

    async def RenewContainer(
        self, request: pb.RenewContainerRequest, context: Context
    ) -> container_pb2.Container:
        task, user = await self._get_container(request.id), current_caller().name
        return self._to_proto(await self._deps.task_manager.apply(task.id, ev.Renewed(user)))

    async def DeleteContainer(
        self, request: pb.DeleteContainerRequest, context: Context
    ) -> pb.DeleteContainerResponse:
        task = await self._get_container(request.id)
        task = await self._deps.task_manager.stop(task.id, current_caller().name, None)
        await self._wait_finished(task)
        if not request.keep_files:
            await self._deps.remove_directory(task.id)
        return pb.DeleteContainerResponse()

    async def _get_container(self, task_id: int) -> Task:
        task = await self._deps.access.get_modifiable(current_caller(), task_id)
        if task.spec.task_type is not TaskType.JUPYTER:
            raise Conflict(f"task {task.id} is not a dev container", reason="NO_CONTAINER")
        return task

    async def _wait_finished(self, task: Task) -> None:
        """Wait until the task has ended: its directory must not be deleted while it runs."""
        try:
            async with asyncio.timeout(_END_TIMEOUT_SECONDS):
                while task.state is not TaskState.FINISHED:
                    version = self._deps.task_manager.feed.version
                    task = await self._deps.task_manager.get(task.id)
                    if task.state is not TaskState.FINISHED:
                        await self._deps.task_manager.feed.beyond(version)
        except TimeoutError:
            raise Unavailable(
                f"container {task.id} has not ended yet; delete it again later"
            ) from None

    async def _wait_done(
        self,
        task: Task,
        request: pb.ControlServiceRequest,
        previous: container_pb2.ServiceStatus | None,
    ) -> None:
        """Wait until the rank reports that the action is done, or until a timeout."""
        starts = previous.starts if previous is not None else 0
        try:
            async with asyncio.timeout(_ACTION_TIMEOUT_SECONDS):
                while not _is_done(self._status(task, request), request.action, starts):
                    await self._deps.service_states.feed.beyond(
                        self._deps.service_states.feed.version
                    )
        except TimeoutError:
            return

    def _status(
        self, task: Task, request: pb.ControlServiceRequest
    ) -> container_pb2.ServiceStatus | None:
        key = request.service, request.rank
        statuses = self._deps.service_states.services(task)
        return next((s for s in statuses if (s.name, s.rank) == key), None)

    def _to_proto(self, task: Task) -> container_pb2.Container:
        return container_to_proto(
            task, self._deps.service_states, self._deps.browsers.url, self._deps.clock.now()
        )


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
