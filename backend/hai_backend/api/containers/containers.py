"""Converts tasks to containers with their services and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hai.v1 import container_pb2 as pb
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.spec import JUPYTER, ServiceSpec, ServiceType
from hai_backend.domain.task import RunState, Task, TaskState


class Browsers(Protocol):
    """Addresses of services for browsers. The proxy implements it."""

    def url(self, task_id: int, service: str) -> str:
        """Return the URL of a service, which is stable for the lifetime of the task."""
        ...

    def link(self, identity: Identity, task: Task, service: str) -> str:
        """Return a one-time link for a browser. Raises Conflict if it would give access to other tasks, too."""
        ...


class NoBrowsers:
    """Stands in for the proxy on a server without one."""

    def url(self, task_id: int, service: str) -> str:
        return ""

    def link(self, identity: Identity, task: Task, service: str) -> str:
        raise Conflict(
            "this server has no proxy: an operator can set http_listen", reason="NO_PROXY"
        )


def main_service(task: Task) -> ServiceSpec | None:
    """Return the service that opens by default: jupyter, or else the first HTTP service."""
    http_services = [s for s in task.spec.services if s.type is ServiceType.HTTP]
    return next(
        (s for s in http_services if s.name == JUPYTER), http_services[0] if http_services else None
    )


def web_service(task: Task, name: str) -> ServiceSpec:
    """Return an HTTP service by name. An empty name means the main service. Raises NotFound."""
    if not name:
        service = main_service(task)
    else:
        http_services = (s for s in task.spec.services if s.type is ServiceType.HTTP)
        service = next((s for s in http_services if s.name == name), None)
    if service is None:
        description = f"http service {name!r}" if name else "http service"
        raise NotFound(f"task {task.id} has no {description}", reason="NO_SUCH_SERVICE")
    return service


def is_main(task: Task, service: ServiceSpec) -> bool:
    """Say whether a service has the address of the task itself."""
    return service == main_service(task)


def container_to_proto(
    task: Task, service_states: ServiceStates, url: Callable[[int, str], str], now: float
) -> pb.Container:
    main = main_service(task)
    container = pb.Container(
        id=task.id,
        services=[_with_url(task, status, url) for status in _statuses(task, service_states)],
        url=url(task.id, "") if main is not None else "",
    )
    run = task.run
    if task.state is not TaskState.RUNNING or run is None:
        return container
    ends_at = to_timestamp(run.deadline)
    if task.spec.options.lifetime and run.state is RunState.RUNNING and ends_at is not None:
        container.ends_at.CopyFrom(ends_at)
    if (active := service_states.active_at(task)) is not None:
        container.idle_seconds = max(0.0, now - active)
    if run.state in (RunState.SUSPENDING, RunState.STOPPING) and ends_at is not None:
        container.notice = run.reason
        container.notice_until.CopyFrom(ends_at)
    return container


def _statuses(task: Task, service_states: ServiceStates) -> list[pb.ServiceStatus]:
    """Return the reported status of each service. A service that no agent reported has an empty status."""
    reported = {(s.name, s.rank): s for s in service_states.services(task)}
    requested = ((service, rank) for service in task.spec.services for rank in service.rank)
    return [reported.get((s.name, rank)) or _unreported(s, rank) for s, rank in requested]


def _unreported(service: ServiceSpec, rank: int) -> pb.ServiceStatus:
    port = 0 if service.name == JUPYTER else service.port
    return pb.ServiceStatus(name=service.name, rank=rank, type=service.type.value, port=port)


def _with_url(
    task: Task, status: pb.ServiceStatus, url: Callable[[int, str], str]
) -> pb.ServiceStatus:
    if status.type != ServiceType.HTTP.value:
        return status
    main = main_service(task)
    with_url = pb.ServiceStatus()
    with_url.CopyFrom(status)
    with_url.url = url(task.id, "" if main and main.name == status.name else status.name)
    return with_url
