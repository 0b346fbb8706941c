"""What containers and services have beside being tasks and parts of them: rules, and the picture that users get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hai.v1 import container_pb2 as pb
from hai_backend.api.request.convert_time import timestamp
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.spec import JUPYTER, ServiceSpec, ServiceType
from hai_backend.domain.task import RunState, Task, TaskState


class Browsers(Protocol):
    """How browsers get to services of tasks: the proxy."""

    def url(self, task_id: int, service: str) -> str:
        """Stays the same as long as the task exists."""
        ...

    def link(self, identity: Identity, task: Task, service: str) -> str:
        """Lets one browser in, once. Raises Conflict where that would open more than this task."""
        ...


class NoBrowsers:
    """A server without a proxy."""

    def url(self, task_id: int, service: str) -> str:
        """See Browsers."""
        return ""

    def link(self, identity: Identity, task: Task, service: str) -> str:
        """See Browsers."""
        raise Conflict(
            "this server has no proxy: an operator can set http_listen", reason="NO_PROXY"
        )


def main_service(task: Task) -> ServiceSpec | None:
    """What one sees who opens a task: jupyter, else its first http service."""
    web = [s for s in task.spec.services if s.type is ServiceType.HTTP]
    return next((s for s in web if s.name == JUPYTER), web[0] if web else None)


def web_service(task: Task, name: str) -> ServiceSpec:
    """An http service by name; empty: the main one. Raises NotFound."""
    if not name:
        found = main_service(task)
    else:
        known = (s for s in task.spec.services if s.type is ServiceType.HTTP)
        found = next((s for s in known if s.name == name), None)
    if found is None:
        which = f"http service {name!r}" if name else "http service"
        raise NotFound(f"task {task.id} has no {which}", reason="NO_SUCH_SERVICE")
    return found


def is_main(task: Task, service: ServiceSpec) -> bool:
    """Whether it has the task's own address."""
    return service == main_service(task)


def picture(
    task: Task, board: ServiceStates, url: Callable[[int, str], str], now: float
) -> pb.Container:
    """The task as a container."""
    main = main_service(task)
    container = pb.Container(
        id=task.id,
        services=[_with_url(task, status, url) for status in _statuses(task, board)],
        url=url(task.id, "") if main is not None else "",
    )
    run = task.run
    if task.state is not TaskState.RUNNING or run is None:
        return container
    ends_at = timestamp(run.deadline)
    if task.spec.options.lifetime and run.state is RunState.RUNNING and ends_at is not None:
        container.ends_at.CopyFrom(ends_at)
    if (active := board.active_at(task)) is not None:
        container.idle_seconds = max(0.0, now - active)
    if run.state in (RunState.SUSPENDING, RunState.STOPPING) and ends_at is not None:
        container.notice = run.reason
        container.notice_until.CopyFrom(ends_at)
    return container


def _statuses(task: Task, board: ServiceStates) -> list[pb.ServiceStatus]:
    """What agents say; of the others only that they exist."""
    told = {(s.name, s.rank): s for s in board.services(task)}
    wanted = ((service, rank) for service in task.spec.services for rank in service.rank)
    return [told.get((s.name, rank)) or _unknown(s, rank) for s, rank in wanted]


def _unknown(service: ServiceSpec, rank: int) -> pb.ServiceStatus:
    port = 0 if service.name == JUPYTER else service.port
    return pb.ServiceStatus(name=service.name, rank=rank, type=service.type.value, port=port)


def _with_url(
    task: Task, status: pb.ServiceStatus, url: Callable[[int, str], str]
) -> pb.ServiceStatus:
    if status.type != ServiceType.HTTP.value:
        return status
    main = main_service(task)
    named = pb.ServiceStatus()
    named.CopyFrom(status)
    named.url = url(task.id, "" if main and main.name == status.name else status.name)
    return named
