"""Dev containers, and the services of a task: JupyterLab, TensorBoard and whatever else runs beside a program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hai_tui.formatting.table import Column
from hai_tui.i18n import text
from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb
from hai_tui.views.containers import CONTAINERS, SERVICES, remarks

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.container_spec import ContainerOptions
    from hai.v1.container_pb2 import Container, ServiceStatus
    from hai.v1.container_service_pb2 import OpenContainerResponse
    from hai.v1.task_pb2 import Task

_KINDS = ("shared", "dedicated", "spot")
_MOST = 1000


async def _load(client: Client) -> Sequence[Task]:
    from hai.v1.task_service_pb2 import TASK_VIEW_FULL

    service_action = "type:jupyter state:waiting_init,running,suspended"
    return (
        await client.tasks.list(filter=service_action, page_size=_MOST, view=TASK_VIEW_FULL)
    ).tasks


def _container_options(item: Any, answers: Answers) -> ContainerOptions:
    from hai.client.tasks.container_spec import ContainerOptions

    return ContainerOptions(
        name=answers.text("name") or "lab",
        kind=answers.choice("kind", ("", *_KINDS)) or None,
        gpu=answers.number("gpu"),
        cpu=answers.number("cpu"),
        memory=answers.number("memory"),
        group=answers.text("group"),
        image=answers.text("image"),
        py_venv=answers.text("py_venv"),
        lifetime=answers.span("lifetime"),
        idle_timeout=answers.span("idle_timeout"),
    )


async def _create(client: Client, options: ContainerOptions) -> Task:
    from hai.client.tasks.container_spec import container_spec

    return await client.tasks.create(await container_spec(client.nodes, options))


def _link(answer: OpenContainerResponse) -> str:
    return text("container.link", link=answer.link, url=answer.url)


def _opening(send: Callable[[Client, Any], Awaitable[OpenContainerResponse]]) -> Verb:
    return Verb(
        "o", "link", send, result_text=_link, clipboard_text=attrgetter("link"), writes=False
    )


def _asked(name: str) -> Column:
    return Column(
        name, lambda t, now: str(getattr(t.spec.resource, name) or "-"), wide=True, right=True
    )


CONTAINERS_PAGE = ResourceSpec(
    "containers",
    replace(CONTAINERS, name=lambda task: f"{task.id} {task.name}"),
    _load,
    (
        Verb(
            "a",
            "new",
            _create,
            _container_options,
            (
                Field("name", lambda item: "lab"),
                Field("kind", choices=_KINDS, violation="resource.is_spot"),
                Field("gpu"),
                Field("cpu"),
                Field("memory"),
                Field("group"),
                Field("image"),
                Field("py_venv"),
                Field("lifetime"),
                Field("idle_timeout"),
            ),
            new=True,
        ),
        _opening(lambda client, task: client.containers.open(task.id)),
        Verb("r", "start", lambda client, t: client.tasks.resume(t.id)),
        Verb(
            "x",
            "putaway",
            lambda client, t: client.tasks.suspend(t.id, hold=True),
            needs_confirmation=True,
        ),
        Verb("R", "renew", lambda client, t: client.containers.renew(t.id)),
        Verb(
            "ctrl+d",
            "erase",
            lambda client, t: client.containers.delete(t.id),
            word_to_type=lambda t: t.name,
        ),
    ),
    opens=lambda task: f"services {task.id}",
    extra=tuple(_asked(name) for name in ("gpu", "cpu", "memory")),
    live=True,
)


@dataclass(slots=True)
class Services:
    """Those of one task, named as on the command line; its number is known once they were asked for."""

    task: str
    id: int = 0
    container: Container | None = None

    def resource(self) -> ResourceSpec:
        """The services as a kind of thing."""
        return ResourceSpec(
            "services",
            SERVICES,
            self._load,
            (
                _opening(self._link),
                *(self._control(key, name) for key, name in _CONTROLS),
            ),
            opens=lambda service: rf"logs {self.id} {service.rank} ^\[{service.name}\]",
            live=True,
        )

    @property
    def lifetime_text(self) -> str:
        """What is to be said of the container's life."""
        return " · ".join(remarks(self.container)) if self.container is not None else ""

    async def _load(self, client: Client) -> Sequence[ServiceStatus]:
        self.id = self.id or await client.tasks.resolve(self.task)
        self.container = await client.containers.get(self.id)
        return self.container.services

    async def _link(self, client: Client, service: ServiceStatus) -> OpenContainerResponse:
        return await client.containers.open(self.id, service.name)

    def _control(self, key: str, name: str) -> Verb:
        return Verb(key, name, partial(self._send, name.upper()), needs_confirmation=name == "stop")

    async def _send(self, action: str, client: Client, service: ServiceStatus) -> Container:
        from hai.v1.container_pb2 import ServiceAction

        service_action = ServiceAction.Value(f"SERVICE_ACTION_{action}")
        return await client.containers.control(
            self.id, service.name, service_action, rank=service.rank
        )


_CONTROLS = (("r", "restart"), ("s", "start"), ("x", "stop"))
RESOURCES = (CONTAINERS_PAGE,)
